"""An encoder is backbone, projection, pooling, normalization."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.data.preprocessing import preprocessing_of
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


def build(backbone, **options):
    return gsp.models.build_encoder(backbone, **{"embedding_size": 8} | options)


def test_pixels_arrive_in_the_range_that_preprocessing_states(tmp_path):
    scale, offset = (0.5, 2.0, 1.0), (-1.0, 0.0, 3.0)
    cut = gsp.data.Preprocessing(16, 16, scale=scale, offset=offset)
    network = feature_backbone()
    encoder = build(network, embedding_size=None, preprocessing=cut)
    plain = build(network, embedding_size=None)
    expected = plain.predict(images() * scale + offset, verbose=0)
    found = encoder.predict(images(), verbose=0)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    encoder.save(tmp_path / "encoder.keras")
    again = keras.saving.load_model(tmp_path / "encoder.keras")
    np.testing.assert_array_equal(again.predict(images(), verbose=0), found)
    assert preprocessing_of(again) == cut


@pytest.mark.parametrize("first", [0, 1, 5])
def test_tokens_before_the_patches_that_nobody_states_are_named(first):
    network = patch_backbone(first)
    if not first:
        build(network)
        return
    with pytest.warns(UserWarning, match=f"Set prefix_tokens={first}"):
        build(network)
    build(network, prefix_tokens=first)
    build(network, prefix="keep")


@pytest.mark.parametrize("normalization", ["l2", "ball", None])
def test_average_pooling_is_the_default(normalization):
    network = feature_backbone()
    encoder = build(network, normalization=normalization)
    features = encoder.get_layer("projection")(network(images()))
    expected = np.mean(features, axis=(1, 2))
    lengths = np.linalg.norm(expected, axis=-1, keepdims=True)
    if normalization == "l2":
        expected = expected / lengths
    if normalization == "ball":
        expected = expected / np.maximum(1.0, lengths)
    np.testing.assert_allclose(encoder(images()), expected, atol=1e-5)


def test_half_precision_ends_in_float32_and_pooled_is_before_its_norm():
    keras.config.set_dtype_policy("mixed_bfloat16")
    pooling = GeneralizedSumPooling(5, return_histogram=True)
    encoder = build(feature_backbone(), pooling=pooling)
    outputs = encoder(images())
    pooled = np.asarray(outputs["pooled"], "float32")
    lengths = np.linalg.norm(pooled, axis=1, keepdims=True)
    dtype = keras.backend.standardize_dtype(outputs["embedding"].dtype)
    assert dtype == "float32"
    expected = pooled / lengths
    np.testing.assert_allclose(outputs["embedding"], expected, atol=1e-6)
    assert np.abs(lengths - 1.0).min() > 1e-3


@pytest.mark.parametrize("tokens", [False, True])
def test_histogram_is_of_features_in_the_ball_and_pooled_their_mean(tokens):
    backbone = token_backbone() if tokens else feature_backbone()
    encoder = build(
        backbone,
        pooling=None if tokens else keras.layers.GlobalMaxPooling2D(),
        histogram=PrototypeHistogram(5, name="histogram"),
    )
    inputs = np.random.default_rng(0).normal(size=(4, *encoder.input_shape[1:]))
    # Long features, of which a softmax of scale 10 would saturate.
    project = encoder.get_layer("projection")
    project.set_weights([100.0 * weight for weight in project.get_weights()])
    outputs = encoder(inputs)
    features = np.asarray(project(backbone(inputs)), "float64")
    features = features.reshape(4, -1, 8)
    lengths = np.linalg.norm(features, axis=-1, keepdims=True)
    assert lengths.max() > 10.0
    inside = features / np.maximum(1.0, lengths)
    prototypes = np.asarray(encoder.get_layer("histogram").prototypes)
    logits = 10.0 * inside @ prototypes.T
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(outputs["histogram"], shares.mean(1), atol=1e-5)
    np.testing.assert_allclose(outputs["pooled"], features.mean(1), rtol=1e-3)


def patch_backbone(num_prefix=1):
    """Images of 8 x 12 pixels to 2 x 3 tokens behind a prefix of -1."""
    images = keras.Input((8, 12, 3))
    patches = keras.layers.Conv2D(
        1, 4, strides=4, use_bias=False, kernel_initializer="ones"
    )(images)
    tokens = keras.layers.Reshape((-1, 1))(patches)
    tokens = keras.layers.Rescaling(1 / 48)(tokens)
    if num_prefix:
        first = keras.layers.Cropping1D((0, 6 - num_prefix))(tokens)
        first = keras.layers.Rescaling(0.0, -1.0)(first)
        tokens = keras.layers.Concatenate(axis=1)([first, tokens])
    return keras.Model(images, tokens)


def numbered_patches():
    """One image whose patches hold 0, 1, 2... row by row."""
    numbers = np.arange(6).reshape(1, 2, 3, 1)
    return np.kron(numbers, np.ones((1, 4, 4, 3))).astype("float32")


def passing_encoder(backbone, **options):
    """An encoder whose projection changes nothing."""
    encoder = gsp.models.build_encoder(
        backbone, embedding_size=1, normalization=None, **options
    )
    encoder.get_layer("projection").set_weights([np.ones((1, 1)), np.zeros(1)])
    return encoder


def test_patches_come_back_as_a_grid_without_their_prefix():
    pooling = GeneralizedSumPooling(3)
    encoder = passing_encoder(
        patch_backbone(2), pooling=pooling, prefix_tokens=2
    )
    grid = keras.Model(encoder.input, encoder.get_layer("patches").output)(
        numbered_patches()
    )
    expected = np.arange(6.0).reshape(1, 2, 3, 1)
    np.testing.assert_allclose(grid, expected, atol=1e-5)
    assert pooling.pooling_weights(grid).shape == (1, 2, 3)


def test_prefix_is_dropped_kept_or_concatenated():
    for prefix, expected in (
        ("drop", [[2.5]]),
        ("keep", [[2.0]]),
        ("concatenate", [[2.5, -1.0]]),
    ):
        options = {"prefix_tokens": 1, "prefix": prefix}
        encoder = passing_encoder(patch_backbone(), **options)
        found = encoder(numbered_patches())
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def masked_patches():
    tokens = patch_backbone(0)
    return keras.Model(tokens.inputs, keras.layers.Masking()(tokens.outputs[0]))


def test_only_known_grids_are_feature_maps():
    for backbone, options, shape in [
        # A prefix that nobody mentioned: seven tokens of a 2:3 image.
        (lambda: patch_backbone(1), {"prefix": "keep"}, (None, 7, 1)),
        (masked_patches, {}, (None, 6, 1)),
        (lambda: patch_backbone(0), {"grid_shape": (3, 2)}, (None, 3, 2, 1)),
    ]:
        pooling = GeneralizedSumPooling(3)
        encoder = passing_encoder(backbone(), pooling=pooling, **options)
        assert keras.tree.flatten(pooling.input)[0].shape == shape
        assert encoder(numbered_patches()).shape == (1, 1)


def masking_backbone():
    """Tokens of zeros are padding, of any number."""
    inputs = keras.Input((None, 5))
    masked = keras.layers.Masking()(inputs)
    return keras.Model(inputs, keras.layers.Dense(6)(masked))


@pytest.mark.parametrize(
    "options",
    [
        {"prefix_tokens": 2, "prefix": "keep"},
        {"is_gsp": True, "prefix_tokens": 2},
    ],
    ids=str,
)
def test_padding_is_not_pooled(options, tmp_path):
    options = dict(options)
    if options.pop("is_gsp", False):
        options["pooling"] = GeneralizedSumPooling(4, power=2.0)
    encoder = build(masking_backbone(), normalization=None, **options)
    tokens = np.random.default_rng(0).normal(size=(2, 7, 5)).astype("float32")
    padded = np.pad(tokens, ((0, 0), (0, 3), (0, 0)))
    expected = encoder(tokens)
    np.testing.assert_allclose(encoder(padded), expected, atol=1e-5)
    encoder.save(tmp_path / "encoder.keras")
    loaded = keras.saving.load_model(tmp_path / "encoder.keras")
    np.testing.assert_allclose(loaded(padded), expected, atol=1e-5)
    # An image without tokens averages to zeros.
    nothing = build(masking_backbone(), embedding_size=3)(0.0 * tokens)
    np.testing.assert_allclose(nothing, np.zeros((2, 3)), atol=1e-6)


def test_gsp_with_a_power_matches_projected_features():
    """GeM + GSP: the mean of the backbone's features, projected."""
    pooling = GeneralizedSumPooling(5, power=2.0, return_histogram=True)
    network = token_backbone()
    encoder = build(network, pooling=pooling, normalization=None)
    assert pooling.prototypes.shape == (5, 8)
    inputs = np.random.default_rng(0).normal(size=(3, *network.input_shape[1:]))
    features = network(inputs)
    project = encoder.get_layer("projection")
    pooled, histogram = pooling(project(features), values=features)
    expected = project(pooled)
    outputs = encoder(inputs)
    np.testing.assert_allclose(outputs["embedding"], expected, atol=1e-5)
    np.testing.assert_allclose(outputs["pooled"], expected, atol=1e-5)
    np.testing.assert_allclose(outputs["histogram"], histogram, atol=1e-5)


def test_the_pooling_decides_what_is_projected():
    """A power mean of projected features would lose their negative half."""
    for make, pools_first in [
        (lambda: None, False),
        (lambda: GeneralizedSumPooling(5), False),
        (lambda: GeneralizedSumPooling(5, power=3.0), True),
        (gsp.layers.GeneralizedMeanPooling, True),
        (gsp.layers.CroWPooling, True),
        (gsp.layers.DELFPooling, True),
        (keras.layers.GlobalMaxPooling2D, True),
        (gsp.layers.WELDONPooling, False),
    ]:
        encoder = build(feature_backbone(), pooling=make())
        # Pooled vectors are projected without a bias.
        assert encoder.get_layer("projection").use_bias != pools_first
