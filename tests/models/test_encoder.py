"""An encoder is backbone, projection, pooling, normalisation."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.layers import GeneralizedSumPooling, PrototypeHistogram


def feature_backbone():
    return keras.Sequential(
        [keras.Input((16, 16, 3)), keras.layers.Conv2D(6, 4, strides=4)]
    )


def token_backbone():
    return keras.Sequential(
        [keras.Input((10, 5)), keras.layers.Dense(6, "relu")]
    )


def images():
    return np.random.default_rng(0).normal(size=(4, 16, 16, 3))


@pytest.mark.parametrize("normalization", ["l2", "ball", None])
def test_average_pooling_is_the_default(normalization):
    encoder = gsp.models.build_encoder(
        feature_backbone(), embedding_size=8, normalization=normalization
    )
    embeddings = encoder.predict(images(), verbose=0)
    features = encoder.get_layer("projection")(feature_backbone()(images()))
    norms = np.linalg.norm(embeddings, axis=-1)
    assert embeddings.shape == (4, 8)
    assert features.shape == (4, 4, 4, 8)
    if normalization == "l2":
        np.testing.assert_allclose(norms, 1.0, rtol=1e-5)
    if normalization == "ball":
        assert (norms <= 1.0 + 1e-6).all()


def test_pooling_sees_projected_features():
    pooling = GeneralizedSumPooling(5)
    encoder = gsp.models.build_encoder(
        feature_backbone(), embedding_size=8, pooling=pooling
    )
    assert pooling.prototypes.shape == (5, 8)
    assert encoder.output_shape == (None, 8)


def test_tokens_are_projected_and_pooled():
    for pooling in (None, GeneralizedSumPooling(5)):
        encoder = gsp.models.build_encoder(
            token_backbone(), embedding_size=8, pooling=pooling
        )
        assert encoder(np.ones((2, 10, 5))).shape == (2, 8)


def test_histogram_of_pooling_is_the_second_output():
    encoder = gsp.models.build_encoder(
        feature_backbone(),
        embedding_size=8,
        pooling=GeneralizedSumPooling(5, return_histogram=True),
    )
    outputs = encoder(images())
    assert outputs["embedding"].shape == (4, 8)
    assert outputs["histogram"].shape == (4, 5)


def test_histogram_layer_goes_with_any_pooling():
    encoder = gsp.models.build_encoder(
        feature_backbone(), embedding_size=8, histogram=PrototypeHistogram(5)
    )
    assert encoder(images())["histogram"].shape == (4, 5)


def test_half_precision_ends_in_float32():
    keras.config.set_dtype_policy("mixed_bfloat16")
    encoder = gsp.models.build_encoder(
        feature_backbone(), embedding_size=8, pooling=GeneralizedSumPooling(5)
    )
    embeddings = encoder.predict(images(), verbose=0)
    assert embeddings.dtype == "float32"
    norms = np.linalg.norm(embeddings, axis=-1)
    np.testing.assert_allclose(norms, 1.0, rtol=1e-6)


def test_pooled_backbone_is_refused():
    backbone = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
    with pytest.raises(ValueError, match="without its top and its pooling"):
        gsp.models.build_encoder(backbone)


def test_unbuilt_backbone_is_refused():
    backbone = keras.Sequential([keras.layers.Conv2D(4, 3)])
    with pytest.raises(ValueError, match="must be a built Keras model"):
        gsp.models.build_encoder(backbone)


def test_two_histograms_are_refused():
    with pytest.raises(ValueError, match="Only one of"):
        gsp.models.build_encoder(
            feature_backbone(),
            pooling=GeneralizedSumPooling(5, return_histogram=True),
            histogram=PrototypeHistogram(5),
        )


def test_bad_size_and_normalization_are_refused():
    with pytest.raises(ValueError, match="embedding_size=0"):
        gsp.models.build_encoder(feature_backbone(), embedding_size=0)
    with pytest.raises(ValueError, match="normalization='max'"):
        gsp.models.build_encoder(feature_backbone(), normalization="max")
