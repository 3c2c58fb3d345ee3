"""The contract and the laws of every pooling, one row per class.

A new pooling adds one line to `POOLINGS`.
"""

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from keras_gsp import layers
from keras_gsp.layers.pooling.feature_pooling import FeaturePooling
from tests.compiled import not_on_jax, on_tensorflow
from tests.gradients import gradients, slope_errors

CHANNELS, TOKENS = 6, 12


@dataclass(frozen=True)
class Row:
    """Arguments of a pooling that use all of its weights.

    Attributes:
        arguments: keyword arguments.
        size: size of the pooled vector.
        sees_neighbors: whether the order of a map's places matters.
    """

    arguments: dict[str, Any]
    size: int = CHANNELS
    sees_neighbors: bool = False


EVERYTHING = {
    "num_prototypes": 4,
    "power": 2.0,
    "learn_power": True,
    "add_max": True,
    "learn_ratio": True,
    "use_affine_costs": True,
}
POOLINGS = {
    "AttentionPooling": Row({"num_queries": 3}),
    "AverageMaxPooling": Row({}),
    "CBAMPooling": Row({"reduction": 2, "kernel_size": 3}, sees_neighbors=True),
    "CroWPooling": Row({}),
    "DELFPooling": Row({"hidden_size": 8}),
    "EfficientProbingPooling": Row({"num_queries": 3, "projection_size": 9}, 9),
    "GSoPPooling": Row({"attention_size": 3}),
    "GeneralizedMaxPooling": Row({"ridge": 0.5}),
    "GeneralizedMeanPooling": Row({"power": 2.0, "learn_power": True}),
    "GeneralizedSumPooling": Row(EVERYTHING),
    "NetVLADPooling": Row({"num_clusters": 3, "projection_size": 4}, 12),
    "OTKPooling": Row(
        {"num_references": 3, "projection_size": 4, "num_iterations": 2}, 12
    ),
    "OptimalTransportPooling": Row(
        {"num_clusters": 3, "projection_size": 4, "hidden_size": 8}, 12
    ),
    "SOLARPooling": Row({}),
    "SimPooling": Row({}),
    "SmoothedMatchKernelPooling": Row({}, sees_neighbors=True),
    "WELDONPooling": Row({"num_largest": 3, "num_smallest": 2}),
}
every_pooling = pytest.mark.parametrize("name", POOLINGS)


def features_of(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def made(name, **kwargs):
    return getattr(layers, name)(**POOLINGS[name].arguments, **kwargs)


def built(name, shape=(2, TOKENS, CHANNELS), **kwargs):
    """The layer with weights away from their symmetric start."""
    layer = made(name, **kwargs)
    layer.build(shape)
    generator = np.random.default_rng(7)
    for weight in layer.trainable_weights:
        noise = 0.2 * generator.normal(size=weight.shape)
        weight.assign(np.asarray(weight) + noise)
    return layer


def same_layer(layer, name, shape=(2, TOKENS, CHANNELS), **kwargs):
    """A second layer with the weights of the first."""
    other = made(name, **kwargs)
    other.build(shape)
    other.set_weights(layer.get_weights())
    return other


@not_on_jax
def test_every_pooling_has_a_row_and_defaults():
    kinds = [getattr(layers, name) for name in layers.__all__]
    kinds = [kind for kind in kinds if issubclass(kind, FeaturePooling)]
    assert {kind.__name__ for kind in kinds} == set(POOLINGS)
    for kind in kinds:
        config = kind().get_config()
        assert kind.from_config(config).get_config() == config


@not_on_jax
def test_all_are_saved_with_a_mask(tmp_path):
    inputs = keras.Input((None, CHANNELS))
    masked = keras.layers.Masking()(inputs)
    model = keras.Model(inputs, {n: built(n)(masked) for n in POOLINGS})
    for name, output in model.output.items():
        assert output.shape == (None, POOLINGS[name].size)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for one, other in zip(model.layers, loaded.layers, strict=True):
        assert one.get_config() == other.get_config()
    padded = features_of((2, TOKENS, CHANNELS))
    padded[:, 8:] = 0.0
    expected = model(padded[:, :8])
    # A graph computes the eager values.
    for name, found in loaded.predict(padded, verbose=0).items():
        np.testing.assert_allclose(
            found, expected[name], rtol=1e-4, atol=1e-5, err_msg=name
        )


@pytest.mark.slow
@not_on_jax
def test_all_train_compiled_by_xla_and_every_weight_moves():
    inputs = keras.Input((4, 3, CHANNELS))
    made = {name: built(name, (2, 4, 3, CHANNELS)) for name in POOLINGS}
    model = keras.Model(inputs, {n: layer(inputs) for n, layer in made.items()})
    before = {n: layer.get_weights() for n, layer in made.items()}
    # One compilation for all: XLA takes seconds for each.
    model.compile("sgd", "mse", jit_compile=True)
    targets = {n: np.ones((8, row.size)) for n, row in POOLINGS.items()}
    model.fit(features_of((8, 4, 3, CHANNELS)), targets, verbose=0)
    for name, layer in made.items():
        for old, new in zip(before[name], layer.get_weights(), strict=True):
            assert np.isfinite(new).all(), name
            assert np.abs(new - old).max() > 0, name


@not_on_jax
@every_pooling
def test_order_of_tokens_and_shape_of_maps(name):
    features = features_of((2, TOKENS, CHANNELS))
    order = np.random.default_rng(1).permutation(TOKENS)
    layer = built(name)
    pooled = layer(features)
    np.testing.assert_allclose(
        layer(features[:, order]), pooled, rtol=1e-4, atol=1e-5
    )
    if not POOLINGS[name].sees_neighbors:
        other = same_layer(layer, name, (2, 4, 3, CHANNELS))
        maps = features.reshape(2, 4, 3, CHANNELS)
        np.testing.assert_allclose(other(maps), pooled, rtol=1e-5, atol=1e-6)


@not_on_jax
@every_pooling
def test_masked_token_is_absent_whatever_it_holds(name):
    layer = built(name)
    features = 3.0 * features_of((3, TOKENS, CHANNELS))
    expected = layer(features[:2, :8])
    for token, value in enumerate((np.nan, np.inf, -np.inf, 3e38), start=8):
        features[:, token] = value
    mask = np.arange(TOKENS) < np.array([[8], [8], [0]])

    def loss(features):
        return ops.sum(ops.square(layer(features, mask=mask)))

    pooled = np.asarray(layer(features, mask=mask))
    np.testing.assert_allclose(pooled[:2], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(pooled[2], 0.0)
    (found,) = gradients(loss, features)
    assert np.isfinite(found).all()
    assert not found[~mask].any()
    assert layer.compute_mask(features, mask=mask) is None


@not_on_jax
@pytest.mark.parametrize("name", ["GSoPPooling", "SOLARPooling"])
def test_masked_is_absent_from_the_statistics_of_a_batch(name):
    features = 3.0 * features_of((3, TOKENS, CHANNELS))
    mask = np.arange(TOKENS) < np.array([[8], [0], [8]])
    layer = built(name)
    other = same_layer(layer, name)
    pooled = np.asarray(layer(features, mask=mask, training=True))
    expected = other(features[::2, :8], training=True)
    np.testing.assert_allclose(pooled[::2], expected, rtol=1e-4, atol=1e-5)
    for one, wanted in zip(
        layer.non_trainable_weights, other.non_trainable_weights, strict=True
    ):
        np.testing.assert_allclose(one, wanted, rtol=1e-4, atol=1e-6)


@not_on_jax
@pytest.mark.parametrize(
    "name",
    [name for name in POOLINGS if hasattr(made(name), "pooling_weights")],
)
def test_pooling_weights_are_maps_that_sum_to_one(name):
    """CBAM, CroW, DELF, GSP, SimPool, SMK and each query of attention."""
    layer = made(name)  # Not built: the weights do that.
    features = features_of((3, 4, 3, CHANNELS))
    features[2] = 0.0  # No response: CroW and SMK weight all alike.
    maps = np.asarray(layer.pooling_weights(features))
    assert maps.shape[:3] == (3, 4, 3)
    assert maps.min() >= 0.0
    np.testing.assert_allclose(maps.sum((1, 2)), 1.0, rtol=1e-5)
    np.testing.assert_allclose(maps[2], 1 / 12, rtol=1e-5)
    assert maps[0].std() > 1e-4
    tokens = features.reshape(3, 12, CHANNELS)
    tokens[1] = np.nan
    mask = np.arange(12) < np.array([[7], [0], [5]])
    layer = built(name)
    found = np.asarray(layer.pooling_weights(tokens, mask))
    alone = np.asarray(layer.pooling_weights(tokens[:1, :7]))
    np.testing.assert_allclose(found[:1, :7], alone, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found[2, :5], 0.2, rtol=1e-4)
    assert not found[~mask].any()


@not_on_jax
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("AttentionPooling", {"num_queries": 1, "use_value_projection": False}),
        ("CroWPooling", {}),
        ("DELFPooling", {}),
        ("GeneralizedSumPooling", {}),
        ("SmoothedMatchKernelPooling", {}),
    ],
)
def test_pooling_weights_are_those_of_a_call(name, arguments):
    """The pooled vector is a multiple of sum_j v_j f_j of positive features."""
    layer = getattr(layers, name)(**arguments)
    features = np.abs(features_of((2, 12, CHANNELS)))
    pooled = np.asarray(layer(features))
    weights = np.asarray(layer.pooling_weights(features))
    factors = pooled / (weights.reshape(2, 12, 1) * features).sum(1)
    np.testing.assert_allclose(factors / factors[:, :1], 1.0, rtol=1e-4)
    # Equal weights would not do.
    wrong = pooled / features.mean(1)
    assert np.abs(wrong / wrong[:, :1] - 1.0).max() > 1e-3


@not_on_jax
@every_pooling
def test_a_row_depends_on_itself_alone_whatever_the_others_hold(name):
    """Huge, tiny, zero and bad rows: finite but where the row is NaN."""
    layer = built(name)
    features = features_of((6, TOKENS, CHANNELS))
    features *= np.array([1, 1e15, 1e-15, 0, 1, 1], "float32")[:, None, None]
    features[4, 3, 2] = np.nan
    pooled = np.asarray(layer(features))
    assert np.isnan(pooled[4]).any()
    for row in (0, 1, 2, 3, 5):
        assert np.isfinite(pooled[row]).all()
        alone = np.asarray(layer(features[row : row + 1]))[0]
        scale = np.abs(alone).max(initial=1e-30)
        np.testing.assert_allclose(
            pooled[row] / scale, alone / scale, rtol=1e-3, atol=1e-4
        )
    (found,) = gradients(lambda x: ops.sum(layer(x)), features)
    assert np.isfinite(found[[0, 1, 2, 3, 5]]).all()


@on_tensorflow
@every_pooling
def test_gradient_equals_differences_in_double_precision(
    name, double_precision
):
    layer = built(name, dtype="float64")
    features = features_of((2, TOKENS, CHANNELS), seed=3).astype("float64")
    mask = np.arange(TOKENS) < np.array([[TOKENS], [7]])
    upstream = np.random.default_rng(1).normal(size=(2, POOLINGS[name].size))
    upstream = ops.convert_to_tensor(upstream)
    variables = layer.trainable_weights

    def loss(features, *weights):
        mapping = list(zip(variables, weights, strict=True))
        with keras.StatelessScope(state_mapping=mapping):
            return ops.sum(layer(features, mask=mask) * upstream)

    weights = [np.asarray(variable) for variable in variables]
    assert all(weight.dtype == "float64" for weight in weights)
    # The norm that weights a feature has no gradient in a match kernel.
    for number in range(name.startswith("Smoothed"), 1 + len(weights)):
        # One array at a time: a small wrong gradient hides in a sum.
        arrays = [features, *weights]

        def of_one(one, number=number, arrays=arrays):
            return loss(*arrays[:number], one, *arrays[number + 1 :])

        # The last layers of a softmax have slopes of 1e-6 and less.
        assert slope_errors(of_one, arrays[number]) < 1e-4, number


@not_on_jax
@every_pooling
def test_half_precision_rounds_only_inputs_and_outputs(name):
    exact = built(name)
    for policy in ("mixed_bfloat16", "float16"):
        compute = policy.removeprefix("mixed_")
        features = ops.cast(features_of((2, TOKENS, CHANNELS)), compute)
        pooled = same_layer(exact, name, dtype=policy)(features)
        assert keras.backend.standardize_dtype(pooled.dtype) == compute
        expected = ops.cast(exact(ops.cast(features, "float32")), compute)
        pooled, expected = (ops.cast(x, "float32") for x in (pooled, expected))
        np.testing.assert_allclose(pooled, expected, rtol=0.01)
