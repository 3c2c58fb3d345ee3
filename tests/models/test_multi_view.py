"""Several views of an image: mirror image and scales, summed."""

import keras
import numpy as np
from PIL import Image

import keras_gsp as gsp
from keras_gsp.data.preprocessing import preprocessing_of
from tests.models.test_two_looks import encoder_of


def encoder(side=None, channels=4):
    """Sees left and right apart: the filters are not symmetric."""
    pooling = gsp.layers.GeneralizedMeanPooling()
    return encoder_of(pooling, side=side, size=channels)


def pixels(*shape):
    return np.random.default_rng(0).random(shape).astype("float32")


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def resized(images, size):
    """By Pillow, channel by channel."""
    return np.stack(
        [
            np.stack(
                [
                    Image.fromarray(image[..., c]).resize(size, Image.BILINEAR)
                    for c in range(3)
                ],
                axis=-1,
            )
            for image in images
        ]
    )


def test_it_sums_the_embeddings_of_images_mirror_images_and_scales():
    one, images = encoder(), pixels(3, 24, 20, 3)
    small = resized(images, (10, 12))
    views = [images, small, images[:, :, ::-1], small[:, :, ::-1]]
    expected = unit(sum(np.asarray(one(view)) for view in views))
    model = gsp.models.MultiView(one, scales=(1.0, 0.5))
    assert model.passes == 4
    np.testing.assert_allclose(model(images), expected, atol=1e-5)
    np.testing.assert_allclose(
        model.predict(images, verbose=0), expected, atol=1e-5
    )
    alone = gsp.models.MultiView(one, flip=False)
    assert alone.passes == 1
    np.testing.assert_allclose(alone(images), one(images), atol=1e-5)
    mirrored = gsp.models.MultiView(one)
    np.testing.assert_allclose(
        mirrored(images), mirrored(images[:, :, ::-1]), atol=1e-5
    )


def test_saved_and_loaded_it_answers_alike(tmp_path):
    images = pixels(2, 24, 20, 3)
    model = gsp.models.MultiView(encoder(), scales=(1.0, 0.5))
    model.save(tmp_path / "views.keras")
    loaded = keras.saving.load_model(tmp_path / "views.keras")
    assert (loaded.flip, loaded.scales) == (True, (1.0, 0.5))
    assert len(loaded.weights) == len(model.encoder.weights)
    np.testing.assert_allclose(loaded(images), model(images), atol=1e-6)


def test_two_looks_take_it_and_it_takes_two_looks():
    images = pixels(2, 30, 26, 3)
    first, second = encoder_of(), gsp.models.MultiView(encoder(16, 6))
    looks = gsp.models.TwoLooks(first, second, combine="second")
    expected = second(looks.crops(images))
    np.testing.assert_allclose(looks(images), expected, atol=1e-5)
    plain = gsp.models.TwoLooks(first)
    twice = gsp.models.TwoLooks(gsp.models.MultiView(first))
    np.testing.assert_array_equal(twice.boxes(images), plain.boxes(images))
    around = gsp.models.MultiView(plain)
    expected = np.asarray(plain(images)) + plain(images[:, :, ::-1])
    np.testing.assert_allclose(around(images), unit(expected), atol=1e-5)


def test_preprocessing_is_the_encoders():
    record = gsp.data.Preprocessing(16, 20)
    one = encoder_of(preprocessing=record)
    views = gsp.models.MultiView(one)
    assert preprocessing_of(views) == record
    of_looks = gsp.models.MultiView(gsp.models.TwoLooks(one))
    assert preprocessing_of(of_looks).image_size is None
