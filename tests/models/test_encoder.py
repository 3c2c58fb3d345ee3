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


@pytest.mark.parametrize("tokens", [False, True])
def test_histogram_is_of_features_in_the_unit_ball_and_pooled_their_mean(
    tokens,
):
    backbone = token_backbone() if tokens else feature_backbone()
    encoder = gsp.models.build_encoder(
        backbone,
        embedding_size=8,
        pooling=None if tokens else keras.layers.GlobalMaxPooling2D(),
        histogram=PrototypeHistogram(5, name="histogram"),
    )
    inputs = np.random.default_rng(0).normal(size=(4, *encoder.input_shape[1:]))
    # Long features, of which a softmax of scale 10 would saturate.
    projection = encoder.get_layer("projection")
    kernel, bias = projection.get_weights()
    projection.set_weights([100.0 * kernel, bias])
    outputs = encoder(inputs)
    features = keras.Model(encoder.inputs, projection.output)(inputs)
    features = np.reshape(features, (4, -1, 8)).astype("float64")
    lengths = np.linalg.norm(features, axis=-1, keepdims=True)
    assert lengths.max() > 10.0
    inside = features / np.maximum(1.0, lengths)
    prototypes = np.asarray(encoder.get_layer("histogram").prototypes)
    logits = 10.0 * inside @ prototypes.T
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(outputs["histogram"], shares.mean(1), atol=1e-5)
    np.testing.assert_allclose(outputs["pooled"], features.mean(1), rtol=1e-3)


def test_pooling_with_its_own_histogram_gives_what_it_pooled():
    encoder = gsp.models.build_encoder(
        feature_backbone(),
        embedding_size=8,
        pooling=GeneralizedSumPooling(5, return_histogram=True),
    )
    outputs = encoder(images())
    pooled = np.asarray(outputs["pooled"])
    lengths = np.linalg.norm(pooled, axis=1, keepdims=True)
    np.testing.assert_allclose(
        outputs["embedding"], pooled / lengths, atol=1e-6
    )
    assert np.abs(lengths - 1.0).min() > 1e-3
