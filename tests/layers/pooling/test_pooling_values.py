"""Values of every pooling but GSP, against loops over features."""

import numpy as np
import pytest
from keras import ops

from keras_gsp import layers
from tests.compiled import not_on_jax
from tests.gradients import gradients
from tests.layers.pooling.test_poolings import features_of

pytestmark = pytest.mark.usefixtures("exact_layers")

FEATURES = features_of((2, 4, 3, 6), seed=5)


def weights_of(layer):
    return {w.name: np.asarray(w, "float64") for w in layer.weights}


def built_with_noise(layer):
    layer.build(FEATURES.shape)
    generator = np.random.default_rng(3)
    for weight in layer.weights:
        noise = 0.3 * generator.uniform(size=weight.shape)
        weight.assign(np.asarray(weight) + noise)
    return layer


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def softmax(x):
    return np.exp(x) / np.exp(x).sum()


def relu(x):
    return np.maximum(x, 0.0)


def check(layer, naive):
    """Compares a layer with a function of (list of features, weights)."""
    layer = built_with_noise(layer)
    pooled = np.asarray(layer(FEATURES))
    for sample, found in zip(FEATURES.astype("float64"), pooled, strict=True):
        expected = naive(sample.reshape(-1, 6), weights_of(layer))
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


def test_cbam_equals_the_formula():
    def naive(features, w):
        def perceptron(x):
            return relu(x @ w["squeeze_kernel"]) @ w["expand_kernel"]

        channels = sigmoid(
            perceptron(features.mean(0)) + perceptron(features.max(0))
        )
        damped = (channels * features).reshape(4, 3, 6)
        padded = np.zeros((6, 5, 2))
        padded[1:5, 1:4, 0] = damped.mean(-1)
        padded[1:5, 1:4, 1] = damped.max(-1)
        total = 0.0
        for y in range(4):
            for x in range(3):
                window = padded[y : y + 3, x : x + 3]
                place = sigmoid((window * w["place_kernel"][..., 0]).sum())
                total = total + place * damped[y, x]
        return total / 12

    check(layers.CBAMPooling(2, kernel_size=3), naive)


def test_crow_equals_the_formula():
    def naive(features, w):
        positive = relu(features)
        strengths = positive.sum(1)
        places = np.sqrt(strengths / np.sqrt((strengths**2).sum()))
        shares = (positive > 0).mean(0)
        total = sum(a * f for a, f in zip(places, positive, strict=True))
        return np.log(shares.sum() / shares) * total / 12

    check(layers.CroWPooling(), naive)


def test_delf_equals_the_formula():
    def naive(features, w):
        total = 0.0
        for f in features:
            hidden = relu(f @ w["hidden_kernel"] + w["hidden_bias"])
            score = hidden @ w["score_kernel"] + w["score_bias"]
            total = total + np.log1p(np.exp(score)) * f
        return total / len(features)

    check(layers.DELFPooling(8), naive)


def normalized(x, layer, training):
    """Batch normalization, by the batch's statistics in training."""
    mean, variance, scale, offset = (
        np.asarray(getattr(layer, name), "float64")
        for name in ("moving_mean", "moving_variance", "gamma", "beta")
    )
    if training:
        axes = tuple(range(x.ndim - 1))
        mean, variance = x.mean(axes), x.var(axes)
    return (x - mean) / np.sqrt(variance + 1e-3) * scale + offset


@pytest.mark.parametrize("training", [False, True])
def test_gsop_equals_the_formula(training):
    layer = built_with_noise(layers.GSoPPooling(3))
    w = weights_of(layer)
    features = FEATURES.reshape(2, 12, 6).astype("float64")
    reduced = features @ w["reduce_kernel"]
    reduced = relu(normalized(reduced, layer.feature_normalization, training))
    covariances = [np.cov(one, rowvar=False, bias=True) for one in reduced]
    # One mean and variance per row, over its columns and the batch.
    rows = normalized(
        np.swapaxes(covariances, 1, 2), layer.row_normalization, training
    )
    read = np.einsum("btr,rts->brs", rows, w["row_filters"]).reshape(2, -1)
    weights = sigmoid(read @ w["expand_kernel"] + w["expand_bias"])
    np.testing.assert_allclose(
        layer(FEATURES, training=training),
        weights * features.mean(1),
        rtol=2e-4,
    )


@pytest.mark.parametrize("training", [False, True])
def test_solar_equals_the_formula(training):
    layer = built_with_noise(layers.SOLARPooling(2.0))
    w = weights_of(layer)
    features = FEATURES.reshape(2, 12, 6).astype("float64")
    queries, keys = (
        relu(
            normalized(
                features @ w[f"{name}_kernel"],
                getattr(layer, f"{name}_normalization"),
                training,
            )
        )
        for name in ("query", "key")
    )
    values = features @ w["value_kernel"] + w["value_bias"]
    expected = []
    for sample in range(2):
        shares = [
            softmax(keys[sample] @ query / np.sqrt(len(query)))
            for query in queries[sample]
        ]
        seen = np.array(shares) @ values[sample]
        attended = features[sample] + seen @ w["output_kernel"]
        attended = np.maximum(attended + w["output_bias"], 1e-6)
        expected.append(np.mean(attended**2.0, axis=0) ** 0.5)
    found = layer(FEATURES, training=training)
    np.testing.assert_allclose(found, expected, rtol=2e-4)


def test_sim_pool_equals_the_formula():
    def naive(features, w):
        mean = features.mean(1, keepdims=True)
        variance = features.var(1, keepdims=True)
        normalized = (features - mean) / np.sqrt(variance + 1e-6)
        normalized = normalized * w["gamma"] + w["beta"]
        query = features.mean(0) @ w["query_kernel"]
        keys = normalized @ w["key_kernel"]
        shares = softmax(keys @ query / np.sqrt(6))
        values = np.maximum(normalized - normalized.min(), 1e-6)
        total = sum(a * v**2.0 for a, v in zip(shares, values, strict=True))
        return np.sqrt(total)

    check(layers.SimPooling(2.0), naive)


@pytest.mark.parametrize(
    "layer, scale",
    [
        (layers.AttentionPooling(3), 1.0),
        (layers.AttentionPooling(3, use_value_projection=False), 1.0),
        (layers.EfficientProbingPooling(3, projection_size=12), 6**-0.5),
    ],
)
def test_attention_and_efficient_probing_equal_the_formula(layer, scale):
    def naive(features, w):
        values = features @ w.get("value_kernel", np.eye(6))
        parts = [
            softmax(scale * features @ query) @ part
            for query, part in zip(
                w["queries"], np.split(values, 3, axis=1), strict=True
            )
        ]
        return np.concatenate(parts)

    check(layer, naive)


def test_smoothed_match_kernel_equals_the_formula():
    def naive(features, w):
        grid = features.reshape(4, 3, 6)
        total = 0.0
        for y in range(4):
            for x in range(3):
                near = grid[max(0, y - 1) : y + 2, max(0, x - 1) : x + 2]
                smooth = near.reshape(-1, 6).mean(0)
                total = total + np.linalg.norm(grid[y, x]) * smooth
        return total / 12

    check(layers.SmoothedMatchKernelPooling(), naive)


def test_smoothed_match_kernel_weights_have_no_gradient():
    tokens = FEATURES.reshape(2, 12, 6)
    layer = layers.SmoothedMatchKernelPooling()
    (found,) = gradients(lambda x: ops.sum(layer(x)), tokens)
    lengths = np.linalg.norm(tokens, axis=-1, keepdims=True)
    expected = np.repeat(lengths / 12, 6, axis=-1)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def naive_sinkhorn(scores, rows, columns, rounds):
    """The plan with the given sums, scaled in plain numbers."""
    plan = np.exp(scores)
    for _ in range(rounds):
        plan = plan * (rows / plan.sum(1))[:, None]
        plan = plan * (columns / plan.sum(0))[None, :]
    return plan


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def test_average_max_equals_the_formula():
    check(layers.AverageMaxPooling(), lambda f, w: f.mean(0) + f.max(0))


@pytest.mark.parametrize("count", [3, 12])
def test_generalized_max_solves_the_ridge_regression(count):
    # Fewer and more features than channels: both forms.
    features = features_of((2, count, 6))
    pooled = layers.GeneralizedMaxPooling(0.3)(features)
    for found, sample in zip(pooled, features.astype("float64"), strict=True):
        gram = sample.T @ sample + 0.3 * np.eye(6)
        expected = np.linalg.solve(gram, sample.sum(0))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_weldon_equals_the_formula():
    def naive(features, w):
        ordered = np.sort(features, axis=0)
        return ordered[-3:].mean(0) + ordered[:2].mean(0)

    check(layers.WELDONPooling(3, 2), naive)


@not_on_jax
def test_weldon_averages_the_few_that_a_mask_keeps():
    tokens = FEATURES.reshape(2, 12, 6)
    mask = np.broadcast_to(np.arange(12) < 2, (2, 12))
    pooled = layers.WELDONPooling(3, 3)(tokens, mask=mask)
    expected = 2.0 * tokens[:, :2].mean(1)
    np.testing.assert_allclose(pooled, expected, rtol=1e-5)


def test_netvlad_equals_the_formula():
    def naive(features, w):
        projected = features @ w["projection"]
        residuals = np.zeros((3, 4))
        for f in projected:
            shares = softmax(f @ w["assignment_kernel"] + w["assignment_bias"])
            for k in range(3):
                residuals[k] += shares[k] * (f - w["centers"][k])
        return unit(residuals).reshape(-1)

    check(layers.NetVLADPooling(3, projection_size=4), naive)


def test_otk_equals_the_formula():
    def naive(features, w):
        projected = features @ w["projection"]
        costs = np.linalg.norm(
            unit(w["references"])[:, None] - unit(projected)[None], axis=-1
        )
        plan = naive_sinkhorn(
            -2.0 * costs, np.full(3, 1 / 3), np.full(12, 1 / 12), 10
        )
        return np.sqrt(3) * (plan @ projected).reshape(-1)

    check(layers.OTKPooling(3, projection_size=4), naive)


@not_on_jax
def test_otk_references_start_where_features_are():
    """Four directions of any length: a reference each, on the unit sphere."""
    generator = np.random.default_rng(0)
    directions = np.eye(6, dtype="float32")[:4]
    lengths = generator.uniform(0.1, 20.0, (30, 9, 1)).astype("float32")
    features = lengths * directions[generator.integers(0, 4, (30, 9))]
    layer = layers.OTKPooling(4, projection_size=4)
    layer.adapt(features, max_features=200, seed=1)
    seen = directions @ np.asarray(layer.projection)
    near = unit(np.asarray(layer.references)) @ unit(seen).T
    np.testing.assert_allclose(np.sort(near.max(axis=1)), 1.0, atol=1e-5)
    assert sorted(near.argmax(axis=1)) == [0, 1, 2, 3]


def test_optimal_transport_pooling_equals_the_formula():
    def naive(features, w):
        hidden = relu(features @ w["hidden_kernel"] + w["hidden_bias"])
        plan = naive_sinkhorn(
            (hidden @ w["score_kernel"]).T,
            np.array([1.0, 1.0, 1.0, 9.0]),
            np.ones(12),
            3,
        )
        received = plan[:3] @ (features @ w["projection"])
        return unit(received).reshape(-1)

    layer = layers.OptimalTransportPooling(3, projection_size=4, hidden_size=8)
    check(layer, naive)


@pytest.mark.parametrize("power", [1.0, 3.0, 7.5])
def test_generalized_mean_equals_the_formula(power):
    def naive(features, w):
        return np.mean(np.maximum(features, 1e-6) ** power, 0) ** (1 / power)

    check(layers.GeneralizedMeanPooling(power), naive)


def test_generalized_mean_of_a_large_power_is_the_maximum():
    features = 50.0 * np.abs(FEATURES)
    largest = layers.GeneralizedMeanPooling(300.0)(features)
    np.testing.assert_allclose(largest, features.max((1, 2)), rtol=1e-2)
    features[0] = -features[0]
    pooling = layers.GeneralizedMeanPooling(10.0)
    (found,) = gradients(lambda x: ops.sum(pooling(x)), features)
    assert np.isfinite(found).all()
    # A learned power starts as given and moves.
    layer = layers.GeneralizedMeanPooling(3.0, learn_power=True)
    for power in (3.0, 5.0):
        fixed = layers.GeneralizedMeanPooling(power)
        np.testing.assert_allclose(layer(FEATURES), fixed(FEATURES), rtol=1e-5)
        (weight,) = layer.trainable_weights
        weight.assign(np.log(4.0))  # p = 5
