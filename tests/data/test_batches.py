"""Training and evaluation images: the same pixels for the same seed."""

import keras
import numpy as np
import pytest
from PIL import Image

import keras_gsp as gsp
from keras_gsp.data import ImageSet, Preprocessing, crops, image_batches

CUT = Preprocessing(8)
WHOLE = Preprocessing(None)


def smooth_image(height, width, seed=0):
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 255, (4, 5, 3)).astype("uint8")
    return np.asarray(Image.fromarray(small).resize((width, height)))


@pytest.fixture
def files(tmp_path):
    """One file of each kind that a folder of photographs may hold."""
    image = Image.fromarray(smooth_image(60, 80))
    kinds = {
        "color.jpg": image,
        "gray.jpg": image.convert("L"),
        "cmyk.jpg": image.convert("CMYK"),
        "palette.png": image.convert("P"),
        "transparent.png": image.convert("RGBA"),
        "black_and_white.png": image.convert("1"),
        "small.png": image.resize((9, 7)),
    }
    for name, picture in kinds.items():
        picture.save(tmp_path / name)
    return [str(tmp_path / name) for name in kinds]


def boxed(images, boxes, **options):
    named = {"paths": images} if isinstance(images[0], str) else {}
    named = named or {"images": images}
    photos = ImageSet([0] * len(images), ("a",), boxes=boxes, **named)
    return image_batches(photos, **options)


def trained(images, batches, seed=None, augment="area", **options):
    """Batches of indices, augmented to 24 x 24."""

    class Rows(list):
        pass

    rows = Rows(batches)
    if seed is not None:
        rows.seed = seed
    cut = Preprocessing(24, 32)
    return image_batches(
        images, preprocessing=cut, sampler=rows, augment=augment, **options
    )


def pixels_of(batches):
    return np.concatenate(list(batches))


@pytest.mark.parametrize("augment", ["area", "side", None])
def test_files_and_arrays_give_the_same_training_pixels(tmp_path, augment):
    pixels = np.stack([smooth_image(60, 80, seed) for seed in range(3)])
    paths = [tmp_path / f"{i}.png" for i in range(3)]
    for path, image in zip(paths, pixels, strict=True):
        Image.fromarray(image).save(path)
    batches = [[0, 1, 1], [2, 2, 0]]
    both = [
        pixels_of(trained(source, batches, augment=augment))
        for source in (paths, pixels)
    ]
    np.testing.assert_array_equal(*both)


def test_a_batch_depends_on_seed_and_step_alone():
    pixels = np.stack([smooth_image(60, 80, seed) for seed in range(4)])
    steps = [[0, 1], [0, 1], [2, 3]]
    batches = trained(pixels, steps)
    whole = pixels_of(batches)
    np.testing.assert_array_equal(batches[2], whole[4:])
    np.testing.assert_array_equal(whole, pixels_of(trained(pixels, steps)))
    assert (whole[:2] != whole[2:4]).any()
    assert (whole != pixels_of(trained(pixels, steps, seed=1))).any()
    later = batches.from_step(1)
    assert later.num_batches == 2
    np.testing.assert_array_equal(pixels_of(later), whole[2:])
    part = pixels_of(batches.from_step(0, rows=[1]))
    np.testing.assert_array_equal(part, whole[1::2])


def test_keras_trains_on_the_batches_of_a_sampler_in_their_order():
    pixels = np.arange(12, dtype="uint8")[:, None, None, None]
    pixels = np.tile(pixels, (1, 8, 8, 3))
    labels = np.arange(12) // 3
    sampler = gsp.data.ClassBalancedSampler(
        labels, classes_per_batch=2, samples_per_class=2
    )
    batches = image_batches(pixels, labels, preprocessing=CUT, sampler=sampler)
    assert batches.num_batches is None
    seen = []

    class Model(keras.Model):
        def train_step(self, *args):
            seen.append(np.asarray(args[-1][0])[:, 0, 0, 0].tolist())
            return {"loss": 0.0}

    if keras.backend.backend() == "jax":
        pytest.skip("a step of JAX is a function")
    model = Model()
    model.compile(run_eagerly=True)
    later = batches.from_step(3)
    options = {"shuffle": False, "verbose": 0}
    model.fit(later, steps_per_epoch=4, epochs=2, **options)
    assert seen == [sampler[step].tolist() for step in range(3, 11)]


def test_each_image_is_cropped_anew_and_half_are_mirrored():
    pixels = smooth_image(60, 80)[None]
    images = trained(pixels, [[0, 0]])[0]
    assert (images[0] != images[1]).any()
    # Red grows to the right, in any crop.
    ramp = np.tile(np.arange(0, 200, 5, dtype="uint8"), (40, 1))
    images = trained(ramp[None, ..., None], [[0] * 400])[0].astype(int)
    mirrored = (images[:, 0, 0] > images[:, 0, -1]).sum()
    assert 140 < mirrored < 260


@pytest.mark.parametrize("shorter_side", [None, 30])
def test_boxes_are_cropped_like_pictures_of_their_own(tmp_path, shorter_side):
    image = smooth_image(60, 80)
    Image.fromarray(image).save(tmp_path / "a.png")
    boxes = [[10, 20, 40, 30], [0, 0, 80, 60]]
    given = [[9.6, 20.4, 40, 30], [0, 0, 80, 60]]  # rounded
    cut = Preprocessing(24, shorter_side)
    parts = [image[y : y + h, x : x + w] for x, y, w, h in boxes]
    expected = [cut.cut(part) for part in parts]
    for images in ([str(tmp_path / "a.png")] * 2, np.stack([image] * 2)):
        found, _ = boxed(images, given, preprocessing=cut)[0]
        np.testing.assert_array_equal(found, np.stack(expected))
    part = trained(np.stack(parts[:1]), [[0]])[0]
    photos = ImageSet([0], ("a",), images=image[None], boxes=boxes[:1])
    np.testing.assert_array_equal(trained(photos, [[0]])[0][0], part)


def test_images_keep_their_own_size_one_at_a_time(tmp_path):
    images = [smooth_image(*size) for size in [(30, 44), (50, 20), (30, 44)]]
    files = [str(tmp_path / f"{i}.png") for i in range(3)]
    for file, image in zip(files, images, strict=True):
        Image.fromarray(image).save(file)
    batches = image_batches(files, [1, 0, 1], preprocessing=WHOLE)
    assert [labels.tolist() for _, labels in batches] == [[1], [0], [1]]
    for (found, _), image in zip(batches, images, strict=True):
        np.testing.assert_array_equal(found, image[None])
    boxes = [[4, 5, 10, 20], [0, 0, 20, 50], [1, 2, 3, 4]]
    parts = boxed(files, boxes, preprocessing=WHOLE)
    shapes = [found.shape[1:3] for found, _ in parts]
    assert shapes == [(20, 10), (50, 20), (4, 3)]


def test_a_box_outside_its_picture_is_refused_by_name(files):
    boxes = [[0, 0, 80, 60], [50, 0, 31, 60]]
    with pytest.raises(ValueError, match=r"first of image 1: \[50, 0, 31"):
        boxed(np.zeros((2, 60, 80, 3), "uint8"), boxes, preprocessing=CUT)
    batches = boxed(files[:2], boxes, preprocessing=CUT)
    with pytest.raises(
        ValueError,
        match=r"gray.jpg \(outside of its \(80, 60\) pixels: box=\(50",
    ):
        batches[0]


def test_batches_carry_the_paths_of_their_files(files):
    batches = image_batches(files[:2], preprocessing=CUT)
    assert batches.ids == ["color.jpg", "gray.jpg"]
    assert image_batches(files[:1] * 2, preprocessing=CUT).ids is None
    pixels = np.zeros((1, 4, 4, 3), "u1")
    assert image_batches(pixels, preprocessing=CUT).ids is None


def test_evaluation_keeps_order_and_the_short_last_batch():
    pixels = np.arange(5, dtype="uint8")[:, None, None, None]
    pixels = np.tile(pixels, (1, 8, 8, 3))
    for cut in (CUT, None):
        batches = image_batches(
            pixels, range(5), preprocessing=cut, batch_size=2
        )
        assert batches.num_batches == 3
        labels = [labels.tolist() for _, labels in batches]
        assert labels == [[0, 1], [2, 3], [4]]
        found = np.concatenate([images for images, _ in batches])
        np.testing.assert_array_equal(found, pixels)


@pytest.mark.parametrize("crop", ["area", "side"])
@pytest.mark.parametrize("shape", [(300, 400), (30, 500), (1, 1), (7, 3)])
def test_windows_lie_inside_and_have_the_published_shape(crop, shape):
    random = np.random.default_rng(3)
    options = {"crop": crop, "shorter_side": 256}
    windows = [
        crops.random_window(*shape, random, **options) for _ in range(200)
    ]
    tops, lefts, heights, widths = np.array(windows).T
    assert tops.min() >= 0 and lefts.min() >= 0
    assert heights.min() >= 1 and widths.min() >= 1
    assert (tops + heights).max() <= shape[0]
    assert (lefts + widths).max() <= shape[1]
    if min(shape) < 100:
        return  # whole pixels distort the ratios of tiny windows
    ratios, sides = widths / heights, np.sqrt(widths * heights)
    assert 0.74 < ratios.min() < 0.8 and 1.25 < ratios.max() < 1.35
    if crop == "area":
        areas = sides**2 / np.prod(shape)
        assert 0.155 < areas.min() < 0.3 and 0.85 < areas.max() <= 1
    else:
        sides = sides * 256 / min(shape)
        assert 39 < sides.min() < 60 and 230 < sides.max() < 257


def test_labels_may_be_strings_or_those_of_an_image_set(files):
    names = np.array([f"class {7 - i}" for i in range(7)])
    batches = image_batches(files, names.tolist(), preprocessing=CUT)
    assert batches.class_names[batches[0][1]].tolist() == names.tolist()
    # Sorted order numbers the classes.
    rows = [[0, 6, 1]]
    batches = image_batches(files, names, preprocessing=CUT, sampler=rows)
    assert batches[0][1].tolist() == [6, 0, 5]
    # Codes, because no backend but TensorFlow's holds 10**12.
    pixels, large = np.zeros((3, 8, 8, 3), "uint8"), [7, 10**12, 9]
    batches = image_batches(pixels, large, preprocessing=CUT)
    assert batches[0][1].tolist() == [0, 2, 1]
    photos = ImageSet([1, 0], ("dog", "cat"), paths=files[:2])
    batches = image_batches(photos, preprocessing=CUT)
    assert batches.class_names[batches[0][1]].tolist() == ["cat", "dog"]


def test_bad_files_are_named_by_the_batch_that_needs_them(tmp_path, files):
    part = (tmp_path / "color.jpg").read_bytes()[:400]
    (tmp_path / "cut.jpg").write_bytes(part)
    cut, missing = str(tmp_path / "cut.jpg"), str(tmp_path / "missing.jpg")
    for good, bad in ((4, 2), (0, 3), (3, 1)):
        paths = [*files[:good], *[cut, missing, cut][:bad], *files]
        batches = image_batches(
            paths, range(len(paths)), preprocessing=CUT, batch_size=2
        )
        found = []
        with pytest.raises(ValueError, match="cut.jpg") as error:
            for _, labels in batches:
                found += labels.tolist()
        # The whole batches before the error.
        assert found == [*range(good // 2 * 2)]
        assert "color.jpg" not in str(error.value)
        assert ("missing.jpg" in str(error.value)) == (bad > 1)
    batches = trained([*files, missing], [[0, 1], [2, 7]])
    assert batches[0].shape == (2, 24, 24, 3)
    with pytest.raises(ValueError, match="missing.jpg"):
        batches[1]
