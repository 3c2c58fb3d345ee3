"""Pillow reads the pixels that TensorFlow reads; batches are a PyDataset."""

import io
import sys

import keras
import numpy as np
import pytest
from PIL import Image

import keras_gsp as gsp
from keras_gsp.data import decoding, images, preprocessing, untuned


@pytest.fixture
def without(monkeypatch):
    # The package has the function under the module's name.
    balanced = sys.modules["keras_gsp.data.class_balanced_batches"]
    for module in (balanced, decoding, images, preprocessing):
        monkeypatch.setattr(module, "has_tensorflow", lambda: False)


def photograph():
    y, x = np.mgrid[:90, :120]
    waves = [np.sin(x / (9 + c)) + np.cos(y / (7 + c)) for c in range(3)]
    noise = np.random.default_rng(0).normal(0, 8, (90, 120, 3))
    pixels = 127 + 50 * np.stack(waves, -1) + noise
    return Image.fromarray(pixels.clip(0, 255).astype("uint8"))


def encoded(kind, image=None, **options):
    file = io.BytesIO()
    (image or photograph()).save(file, kind, **options)
    return file.getvalue()


@pytest.mark.skipif(
    not untuned.has_tensorflow(), reason="compares with TensorFlow"
)
def test_both_decoders_agree_within_one_gray_level(monkeypatch):
    exif = Image.Exif()
    exif[0x0112] = 6
    clear = photograph().convert("RGBA")
    clear.putalpha(photograph().convert("L"))
    files = [
        encoded("JPEG"),
        encoded("JPEG", quality=95, subsampling=0, exif=exif),
        encoded("JPEG", photograph().convert("L")),
        encoded("PNG"),
        encoded("PNG", clear),
        encoded("BMP"),
        encoded("WEBP"),
    ]
    whole = gsp.data.Preprocessing((40, 50), None)
    both = []
    for is_there in (True, False):
        for module in (decoding, preprocessing):
            monkeypatch.setattr(module, "has_tensorflow", lambda i=is_there: i)
        both.append(
            [
                *map(gsp.data.decode_image, files),
                *(np.asarray(whole.decode(file)) for file in files),
            ]
        )
    for number, pair in enumerate(zip(*both, strict=True)):
        one, other = (np.asarray(pixels).astype(int) for pixels in pair)
        assert one.shape == other.shape, number
        assert np.abs(one - other).max() <= 1, number


def test_images_are_batched_without_it(without, tmp_path):
    paths = [tmp_path / f"{n}.png" for n in range(5)]
    for n, path in enumerate(paths):
        pixels = np.full((30, 40, 3), 10 * n, "uint8")
        path.write_bytes(encoded("PNG", Image.fromarray(pixels)))
    names = ["a", "a", "b", "b", "b"]
    batches = gsp.data.evaluation_batches(paths, names, size=8, batch_size=2)
    assert isinstance(batches, keras.utils.PyDataset)
    read = [batches[step] for step in range(batches.num_batches)]
    found = np.concatenate([image[:, 0, 0, 0] for image, _ in read])
    assert found.tolist() == [0, 10, 20, 30, 40]
    codes = np.concatenate([labels for _, labels in read])
    assert batches.class_names[codes].tolist() == names
    assert batches.ids == [f"{n}.png" for n in range(5)]
    paths[3].write_bytes(b"no image")
    with pytest.raises(ValueError, match="readable_images.*3.png"):
        batches[1]
    boxes = [[0, 0, 8, 8], [30, 0, 11, 30]]
    batches = gsp.data.evaluation_batches(paths[:2], boxes=boxes)
    with pytest.raises(ValueError, match=r"/1.png \(box 30, 0, 11, 30\)"):
        batches[0]


def test_training_batches_are_a_function_of_seed_and_step(without):
    pixels = np.random.default_rng(0).integers(0, 256, (8, 40, 50, 3), "uint8")
    labels = np.repeat([5, 7], 4)
    options = {"classes_per_batch": 2, "samples_per_class": 2}

    def batch(step, first_step=0, seed=0):
        indices = gsp.data.class_balanced_batches(
            labels, first_step=first_step, **options
        )
        batches = gsp.data.augmented_batches(
            pixels, labels, indices, size=16, seed=seed, first_step=first_step
        )
        assert batches.num_batches is None
        return batches[step]

    image, codes = batch(5)
    assert image.shape == (4, 16, 16, 3) and image.dtype == "uint8"
    assert sorted(codes) == [5, 5, 7, 7]
    np.testing.assert_array_equal(image, batch(2, first_step=3)[0])
    assert (image != batch(5, seed=1)[0]).any()


def test_another_kind_of_indices_is_refused(without):
    pixels = np.zeros((4, 8, 8, 3), "uint8")
    with pytest.raises(TypeError, match="class_balanced_batches.*list"):
        gsp.data.augmented_batches(pixels, range(4), [[0, 1]], size=8)
