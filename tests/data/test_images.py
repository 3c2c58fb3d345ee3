"""Training and evaluation images: the same pixels for the same seed."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import keras_gsp as gsp
from keras_gsp.data import crops
from keras_gsp.data.images import _source


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


def index_batches(*batches):
    return tf.data.Dataset.from_tensor_slices(np.array(batches))


def all_images(batches):
    return np.concatenate([images for images, _ in batches])


def trained(images, batches, **settings):
    """All pixels of batches of indices, augmented to 24 x 24."""
    labels = np.arange(len(images)) // 2
    indices = index_batches(*batches)
    return all_images(
        gsp.data.augmented_batches(images, labels, indices, size=24, **settings)
    )


def test_every_kind_of_file_gives_three_channels(files):
    batch = next(iter(gsp.data.evaluation_batches(files, size=28, resize=32)))
    assert batch.shape == (7, 28, 28, 3)
    assert batch.dtype == tf.uint8
    gray = np.asarray(batch[1])
    np.testing.assert_array_equal(gray[..., 0], gray[..., 2])


@pytest.mark.parametrize("crop", ["area", "side", None])
def test_files_and_arrays_give_the_same_training_pixels(tmp_path, crop):
    pixels = np.stack([smooth_image(60, 80, seed) for seed in range(3)])
    paths = [tmp_path / f"{i}.png" for i in range(3)]
    for path, image in zip(paths, pixels, strict=True):
        Image.fromarray(image).save(path)
    batches = [[0, 1, 1], [2, 2, 0]]
    both = [
        trained(source, batches, resize=32, crop=crop)
        for source in (paths, pixels)
    ]
    np.testing.assert_array_equal(*both)


def test_a_batch_depends_on_seed_and_step_alone():
    pixels = np.stack([smooth_image(60, 80, seed) for seed in range(4)])
    steps = [[0, 1], [0, 1], [2, 3]]
    whole = trained(pixels, steps)
    np.testing.assert_array_equal(whole, trained(pixels, steps))
    resumed = trained(pixels, steps[1:], first_step=1)
    np.testing.assert_array_equal(whole[2:], resumed)
    assert (whole[:2] != whole[2:4]).any()
    assert (whole != trained(pixels, steps, seed=1)).any()
    part = trained(pixels, steps, positions=[1])
    np.testing.assert_array_equal(part, whole[1::2])


def test_each_image_is_cropped_anew_and_half_are_mirrored():
    pixels = smooth_image(60, 80)[None]
    images = trained(pixels, [[0, 0]], flip=False)
    assert (images[0] != images[1]).any()
    pixels = smooth_image(40, 40)[None]
    images = trained(pixels, [[0] * 400], resize=24, crop=None)
    mirrored = (images == images[0]).all(axis=(1, 2, 3)).sum()
    assert 140 < mirrored < 260
    assert len(np.unique(images, axis=0)) == 2


def test_a_picture_of_ones_own_is_not_cropped():
    image = smooth_image(50, 80)[None]
    (ours,) = gsp.data.evaluation_batches(image, size=20).as_numpy_iterator()
    whole = gsp.data.Preprocessing(20, None).cut(image[0])
    np.testing.assert_array_equal(ours[0], whole)


@pytest.mark.parametrize("resize", [None, 30])
def test_boxes_are_cropped_like_pictures_of_their_own(tmp_path, resize):
    image = smooth_image(60, 80)
    Image.fromarray(image).save(tmp_path / "a.png")
    boxes = [[10, 20, 40, 30], [0, 0, 80, 60]]
    given = [[9.6, 20.4, 40, 30], [0, 0, 80, 60]]  # rounded
    cut = gsp.data.Preprocessing(24, resize)
    expected = [cut.cut(image[y : y + h, x : x + w]) for x, y, w, h in boxes]
    for images in ([tmp_path / "a.png"] * 2, np.stack([image] * 2)):
        (found,) = gsp.data.evaluation_batches(
            images, preprocessing=cut, boxes=given
        ).as_numpy_iterator()
        np.testing.assert_array_equal(found, np.stack(expected))


def test_images_keep_their_own_size_one_at_a_time(tmp_path):
    sizes = [(30, 44), (50, 20), (30, 44)]
    images = [smooth_image(*size) for size in sizes]
    files = [str(tmp_path / f"{i}.png") for i in range(3)]
    for file, image in zip(files, images, strict=True):
        Image.fromarray(image).save(file)
    batches = gsp.data.evaluation_batches(files, [1, 0, 1], size=None)
    found = list(batches.as_numpy_iterator())
    assert len(batches) == 3 and [int(label[0]) for _, label in found] == [
        1,
        0,
        1,
    ]
    for (own, _), image in zip(found, images, strict=True):
        np.testing.assert_array_equal(own, image[None])
    boxes = [[4, 5, 10, 20], [0, 0, 20, 50], [1, 2, 3, 4]]
    parts = gsp.data.evaluation_batches(files, size=None, boxes=boxes)
    assert [one.shape[1:3] for one in parts] == [(20, 10), (50, 20), (4, 3)]
    (tmp_path / "1.png").write_bytes(b"no image")
    with pytest.raises(tf.errors.InvalidArgumentError, match="1.png"):
        list(batches)


def test_a_box_outside_its_picture_is_refused_by_name(files):
    boxes = [[0, 0, 80, 60], [50, 0, 31, 60]]
    with pytest.raises(ValueError, match=r"first of image 1: \[50, 0, 31"):
        gsp.data.evaluation_batches(
            np.zeros((2, 60, 80, 3), "uint8"), boxes=boxes
        )
    batches = gsp.data.evaluation_batches(files[:2], boxes=boxes)
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"gray.jpg \(box 50, 0, 31, 60",
    ):
        list(batches)
    for wrong in (
        [[2**32, 0, 9, 9]] * 2,
        [[0, 0, 9]] * 2,
        [[0, 0, 0, 9]] * 2,
        [[0.1, 0.1, 0.8, 0.8]] * 2,
        [[0, 0, 1, 1]] * 2,
        [[-1, 0, 9, 9]] * 2,
    ):
        with pytest.raises(ValueError, match="`boxes` must"):
            gsp.data.evaluation_batches(files[:2], boxes=wrong)


def test_batches_carry_the_paths_of_their_files(files, tmp_path):
    batches = gsp.data.evaluation_batches(files[:2])
    assert batches.ids == ["color.jpg", "gray.jpg"]
    assert gsp.data.evaluation_batches(files[:1] * 2).ids is None
    assert gsp.data.evaluation_batches(np.zeros((1, 4, 4, 3), "u1")).ids is None


def test_paths_of_every_library_are_read_alike(files):
    """What the entry points do first; labels are those of `label_codes`."""
    pandas = pytest.importorskip("pandas")
    for paths in (
        tuple(files),
        [*map(pathlib.Path, files)],
        np.array(files, object),
        np.array(files).astype("S"),
        pandas.Series(files, index=range(7, 14)),
        pandas.Series(files, dtype="string"),
        pandas.Series(files, dtype="category"),
        tf.constant(files),
    ):
        found = _source(paths).tolist()
        assert found == [file.encode() for file in files], type(paths)


def test_evaluation_keeps_order_and_the_short_last_batch():
    pixels = np.arange(5, dtype="uint8")[:, None, None, None]
    pixels = np.tile(pixels, (1, 8, 8, 3))
    options = {"size": 8, "resize": 8, "batch_size": 2}
    batches = list(gsp.data.evaluation_batches(pixels, range(5), **options))
    labels = [labels.numpy().tolist() for _, labels in batches]
    assert labels == [[0, 1], [2, 3], [4]]
    np.testing.assert_array_equal(all_images(batches), pixels)


@pytest.mark.parametrize("crop", ["area", "side"])
@pytest.mark.parametrize("shape", [(300, 400), (30, 500), (1, 1), (7, 3)])
def test_windows_lie_inside_and_have_the_published_shape(crop, shape):
    seeds = tf.stack([tf.fill([200], 3), tf.range(200)], axis=1)
    draw = tf.function(
        lambda seed: crops.random_window(*shape, seed, crop=crop),
        input_signature=[tf.TensorSpec([2], "int32")],
    )
    windows = np.array([draw(seed) for seed in seeds])
    tops, lefts, heights, widths = windows.T
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


def test_bad_arguments_are_named():
    for arguments, message in [
        ({"size": 300}, "size=300, resize=256"),
        ({"size": 0}, "size=0"),
        ({"crop": "random"}, "crop='random'"),
        ({"labels": [0]}, r"\(2,\).*Received: shape \(1,\)"),
        ({"images": np.zeros((2, 8, 8, 3), "float32")}, "float32"),
        ({"images": np.zeros((2, 8, 8), "uint8")}, "shape"),
        ({"positions": [2]}, r"a batch of 2. Received: positions=\[2\]"),
        ({"positions": []}, r"positions=\[\]"),
        ({"crop": "side", "resize": None}, "resize=None"),
        ({"labels": [0.5, 1.0]}, "`labels` must be"),
        (
            {"index_batches": tf.data.Dataset.range(5).batch(2)},
            "drop_remainder",
        ),
    ]:
        settings = {
            "images": np.zeros((2, 8, 8, 3), "uint8"),
            "labels": [0, 1],
            "index_batches": index_batches([0, 1]),
            **arguments,
        }
        with pytest.raises(ValueError, match=message):
            gsp.data.augmented_batches(**settings)


def test_labels_may_be_strings_and_paths_an_array(files):
    names = np.array([f"class {7 - i}" for i in range(7)])
    evaluated = gsp.data.evaluation_batches(
        np.array(files), names.tolist(), size=8, resize=8
    )
    (found,) = [labels.numpy() for _, labels in evaluated]
    assert evaluated.class_names[found].tolist() == names.tolist()
    trained = gsp.data.augmented_batches(
        np.array(files, object), names, index_batches([0, 6, 1]), size=8
    )
    # Sorted order numbers the classes.
    assert next(iter(trained))[1].numpy().tolist() == [6, 0, 5]
    pixels = np.zeros((3, 8, 8, 3), "uint8")
    batches = gsp.data.augmented_batches(
        pixels, [7, 10**12, 9], index_batches([1, 2]), size=8
    )
    # Codes, because no backend but TensorFlow's holds 10**12.
    assert next(iter(batches))[1].numpy().tolist() == [2, 1]


def test_bad_files_are_named_by_the_batch_that_needs_them(tmp_path, files):
    part = (tmp_path / "color.jpg").read_bytes()[:400]
    (tmp_path / "cut.jpg").write_bytes(part)
    cut, missing = str(tmp_path / "cut.jpg"), str(tmp_path / "missing.jpg")

    def first_error(batches):
        found = []
        with pytest.raises(tf.errors.InvalidArgumentError) as error:
            for images, labels in batches:
                found += labels.numpy().tolist()
                assert len(images) == len(labels)
        return found, error.value.message

    for good, bad in ((4, 2), (0, 3), (3, 1)):
        paths = [*files[:good], *[cut, missing, cut][:bad], *files]
        evaluated = gsp.data.evaluation_batches(
            paths, range(len(paths)), size=8, batch_size=2
        )
        found, message = first_error(evaluated)
        # The whole batches before the error.
        assert found == [*range(good // 2 * 2)]
        assert "cut.jpg" in message and "color.jpg" not in message
        assert ("missing.jpg" in message) == (bad > 1)
    found, message = first_error(
        gsp.data.augmented_batches(
            [*files, missing], range(8), index_batches([0, 1], [2, 7]), size=8
        )
    )
    assert found == [0, 1] and "missing.jpg" in message


def test_batches_have_known_shapes_and_a_known_number():
    pixels = np.zeros((5, 9, 9, 1), "uint8")
    evaluated = gsp.data.evaluation_batches(pixels, size=8, batch_size=2)
    assert evaluated.element_spec.shape == (None, 8, 8, 1)
    assert len(evaluated) == 3
    # Without an autotuner, whose end a program would wait for.
    assert evaluated.options().autotune.enabled is False
    trained = gsp.data.augmented_batches(
        pixels, range(5), index_batches([0, 1, 2], [2, 3, 4]).repeat(), size=8
    )
    images, labels = trained.element_spec
    assert (images.shape, labels.shape) == ((3, 8, 8, 1), (3,))
    assert int(trained.cardinality()) == -1
    assert trained.options().autotune.enabled is False
