"""One object for all crops: alike from bytes, arrays and in batches."""

import io
import types

import keras
import numpy as np
import pytest
from PIL import Image

import keras_gsp as gsp
from keras_gsp.data import Preprocessing

PIXELS = np.random.default_rng(0).integers(0, 256, (40, 60, 3)).astype("uint8")


def encoded(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("shorter_side", [None, 20, 25.5])
def test_bytes_arrays_and_batches_are_cut_alike(shorter_side, tmp_path):
    preprocessing = Preprocessing(20, shorter_side)
    (tmp_path / "a.png").write_bytes(encoded(PIXELS))
    files = np.array([str(tmp_path / "a.png")])
    found = [
        preprocessing.decode(encoded(PIXELS)),
        preprocessing.cut(PIXELS),
        *(
            gsp.data.image_batches(images, preprocessing=preprocessing)[0][0]
            for images in (files, PIXELS[None])
        ),
    ]
    for one in found[1:]:
        np.testing.assert_array_equal(one, found[0])
    assert found[0].shape == (20, 20, 3)


def test_the_center_is_kept():
    cut = Preprocessing(20, 20).cut(PIXELS[:20, :40])
    np.testing.assert_array_equal(cut, PIXELS[:20, 10:30])
    smaller = Preprocessing(10, 20).cut(PIXELS[:20, :40])
    np.testing.assert_array_equal(smaller, PIXELS[5:15, 15:25])


def test_a_large_picture_is_reduced_to_a_shorter_side_and_no_small_one_grows():
    assert Preprocessing(None, 20).cut(PIXELS).shape == (20, 30, 3)
    np.testing.assert_array_equal(Preprocessing(None, 50).cut(PIXELS), PIXELS)


def test_a_model_of_keras_applications_gives_its_pixel_range():
    color = np.array([[[[10.0, 100.0, 200.0]]]])
    for name, module in (
        ("MobileNetV2", keras.applications.mobilenet_v2),
        ("DenseNet121", keras.applications.densenet),
        ("EfficientNetV2B0", keras.applications.efficientnet_v2),
    ):
        cut = Preprocessing.for_application(name, 160)
        expected = module.preprocess_input(
            color.copy(), data_format="channels_last"
        )
        found = color * np.array(cut.scale) + np.array(cut.offset)
        np.testing.assert_allclose(found, expected, atol=1e-6)
    assert cut.image_size == 160
    for name, message in (("ResNet50", "blue first"), ("Model", "'Model'")):
        with pytest.raises(ValueError, match=message):
            Preprocessing.for_application(name)


def converter(**options):
    """The attributes of an image converter of keras-hub, and its defaults."""
    defaults = {"image_size": (24, 24), "scale": None, "offset": None}
    defaults |= {"crop_to_aspect_ratio": True, "pad_to_aspect_ratio": False}
    return types.SimpleNamespace(**(defaults | options))


def test_a_converter_gives_size_crop_and_pixel_range():
    plain = Preprocessing.from_converter(converter())
    assert plain == Preprocessing((24, 24), 24)
    scale, offset = np.float32([0.5, 0.25, 1.0]), [-1.0, 0.0, 2.0]
    found = Preprocessing.from_converter(
        converter(crop_to_aspect_ratio=False, scale=scale, offset=offset), 32
    )
    kept = {"scale": (0.5, 0.25, 1.0), "offset": (-1.0, 0.0, 2.0)}
    assert found == Preprocessing((32, 32), None, **kept)
    assert hash(found)


def test_it_is_saved_and_compared_by_its_arguments():
    one = Preprocessing((20, 30), channels=1, max_pixels=900)
    kept = keras.saving.serialize_keras_object(one)
    again = keras.saving.deserialize_keras_object(kept)
    assert again == one and hash(again) == hash(one)
    assert (again.height, again.width) == (20, 30)
    assert one != Preprocessing((20, 30)) and one != "other"
    assert Preprocessing(20, 25).crop_fraction == 0.8
    assert "shorter_side=None" in repr(one)
