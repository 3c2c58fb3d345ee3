"""Values of the poolings that weigh features, against loops over them."""

import numpy as np
import pytest

from keras_gsp import layers
from tests.layers.pooling.test_poolings import features_of

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


@pytest.mark.parametrize(
    "built_for, called_on",
    [((2, 4, 3, 6), (2, 12, 6)), ((2, 12, 6), (2, 4, 3, 6))],
)
def test_cbam_is_for_the_rank_that_it_was_built_for(built_for, called_on):
    layer = layers.CBAMPooling(2, kernel_size=3)
    layer.build(built_for)
    with pytest.raises(ValueError, match="that the layer was built for"):
        layer(features_of(called_on))
    # Without neighbors it is the same to both.
    layer = layers.CBAMPooling(2, kernel_size=1)
    layer.build(built_for)
    np.testing.assert_allclose(
        layer(FEATURES), layer(FEATURES.reshape(2, 12, 6)), rtol=1e-5
    )


def test_crow_equals_the_formula():
    def naive(features, w):
        positive = relu(features)
        strengths = positive.sum(1)
        places = np.sqrt(strengths / np.sqrt((strengths**2).sum()))
        shares = (positive > 0).mean(0)
        total = sum(a * f for a, f in zip(places, positive, strict=True))
        return np.log(shares.sum() / shares) * total / 12

    check(layers.CroWPooling(), naive)


def test_crow_channel_that_never_responds_pools_to_zero():
    features = -np.abs(features_of((1, 9, 3)))
    features[..., 1] = 1.0
    np.testing.assert_allclose(
        layers.CroWPooling()(features), [[0.0, 0.0, 0.0]], atol=1e-6
    )


def test_delf_equals_the_formula():
    def naive(features, w):
        total = 0.0
        for f in features:
            hidden = relu(f @ w["hidden_kernel"] + w["hidden_bias"])
            score = hidden @ w["score_kernel"] + w["score_bias"]
            total = total + np.log1p(np.exp(score)) * f
        return total / len(features)

    check(layers.DELFPooling(8), naive)


def batch_normalized(x, mean, variance, scale, offset):
    return (x - mean) / np.sqrt(variance + 1e-3) * scale + offset


def statistics(layer):
    """(mean, variance, scale, offset) of a batch normalization."""
    names = "moving_mean", "moving_variance", "gamma", "beta"
    return [np.asarray(getattr(layer, n), "float64") for n in names]


def test_gsop_equals_the_formula():
    layer = layers.GSoPPooling(3)

    def naive(features, w):
        reduced = relu(
            batch_normalized(
                features @ w["reduce_kernel"],
                *statistics(layer.feature_normalization),
            )
        )
        covariance = np.cov(reduced, rowvar=False, bias=True)
        mean, variance, scale, offset = statistics(layer.row_normalization)
        rows = []
        for r in range(3):
            row = batch_normalized(
                covariance[r], mean[r], variance[r], scale[r], offset[r]
            )
            rows.extend(row @ w["row_filters"][r])
        logits = np.array(rows) @ w["expand_kernel"] + w["expand_bias"]
        return sigmoid(logits) * features.mean(0)

    check(layer, naive)


def normalized_by_batch(x, layer):
    """Normalized along all axes but the last, as in training."""
    axes = tuple(range(x.ndim - 1))
    return batch_normalized(
        x, x.mean(axes), x.var(axes), *statistics(layer)[2:]
    )


def test_gsop_is_trained_by_the_statistics_of_its_batch():
    layer = built_with_noise(layers.GSoPPooling(3))
    w = weights_of(layer)
    features = FEATURES.reshape(2, 12, 6).astype("float64")
    reduced = relu(
        normalized_by_batch(
            features @ w["reduce_kernel"], layer.feature_normalization
        )
    )
    covariances = [np.cov(one, rowvar=False, bias=True) for one in reduced]
    # One mean and variance a row, over its columns and the batch.
    rows = normalized_by_batch(
        np.swapaxes(covariances, 1, 2), layer.row_normalization
    )
    read = np.einsum("btr,rts->brs", rows, w["row_filters"]).reshape(2, -1)
    weights = sigmoid(read @ w["expand_kernel"] + w["expand_bias"])
    np.testing.assert_allclose(
        layer(FEATURES, training=True), weights * features.mean(1), rtol=1e-4
    )


def test_solar_is_trained_by_the_statistics_of_its_batch():
    layer = built_with_noise(layers.SOLARPooling(2.0, attention_size=4))
    w = weights_of(layer)
    features = FEATURES.reshape(2, 12, 6).astype("float64")
    queries, keys = (
        relu(
            normalized_by_batch(
                features @ w[f"{name}_kernel"],
                getattr(layer, f"{name}_normalization"),
            )
        )
        for name in ("query", "key")
    )
    values = features @ w["value_kernel"] + w["value_bias"]
    expected = []
    for sample in range(2):
        shares = [
            softmax(keys[sample] @ query / 2.0) for query in queries[sample]
        ]
        seen = np.array(shares) @ values[sample]
        enriched = features[sample] + seen @ w["output_kernel"]
        enriched = np.maximum(enriched + w["output_bias"], 1e-6)
        expected.append(np.mean(enriched**2.0, axis=0) ** 0.5)
    found = layer(FEATURES, training=True)
    np.testing.assert_allclose(found, expected, rtol=2e-4)


@pytest.mark.parametrize("size", [None, 4])
def test_solar_equals_the_formula(size):
    layer = layers.SOLARPooling(2.0, attention_size=size)

    def naive(features, w):
        queries, keys = (
            relu(
                batch_normalized(
                    features @ w[f"{name}_kernel"],
                    *statistics(getattr(layer, f"{name}_normalization")),
                )
            )
            for name in ("query", "key")
        )
        values = features @ w["value_kernel"] + w["value_bias"]
        enriched = []
        for f, query in zip(features, queries, strict=True):
            shares = softmax(keys @ query / np.sqrt(len(query)))
            seen = shares @ values
            enriched.append(f + seen @ w["output_kernel"] + w["output_bias"])
        positive = np.maximum(enriched, 1e-6)
        return np.mean(positive**2.0, axis=0) ** 0.5

    check(layer, naive)


def test_solar_starts_as_the_generalised_mean():
    features = np.random.default_rng(0).normal(size=(2, 4, 3, 6))
    solar, gem = layers.SOLARPooling(2.0), layers.GeneralizedMeanPooling(2.0)
    np.testing.assert_allclose(solar(features), gem(features), rtol=1e-5)
    assert solar.value_kernel.shape == (6, 3)


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


@pytest.mark.parametrize("has_values", [True, False])
def test_attention_equals_the_formula(has_values):
    def naive(features, w):
        parts = []
        for number, query in enumerate(w["queries"]):
            shares = softmax(features @ query)
            values = features
            if has_values:
                values = features @ w["value_kernel"]
            parts.extend((shares @ values)[2 * number : 2 * number + 2])
        return np.array(parts)

    layer = layers.AttentionPooling(3, use_value_projection=has_values)
    check(layer, naive)


def test_attention_weights_are_maps_that_sum_to_one():
    layer = layers.AttentionPooling(2)
    weights = np.asarray(layer.pooling_weights(FEATURES))
    assert weights.shape == (2, 4, 3, 2)
    np.testing.assert_allclose(weights.sum((1, 2)), 1.0, rtol=1e-5)
    mask = np.arange(12) < 5
    tokens = FEATURES.reshape(2, 12, 6)
    weights = layer.pooling_weights(tokens, np.broadcast_to(mask, (2, 12)))
    assert not np.asarray(weights)[:, 5:].any()


def test_attention_weights_of_a_row_without_tokens_sum_to_zero():
    tokens = FEATURES.reshape(2, 12, 6).copy()
    tokens[1] = np.nan
    mask = np.arange(12) < np.array([[5], [0]])
    weights = np.asarray(
        layers.AttentionPooling(2).pooling_weights(tokens, mask)
    )
    np.testing.assert_allclose(weights[0].sum(0), 1.0, rtol=1e-5)
    assert not weights[1].any()


def test_attention_queries_must_divide_the_channels():
    with pytest.raises(ValueError, match="num_queries=4, channels=6"):
        layers.AttentionPooling(4)(FEATURES)


def test_smoothed_match_kernel_equals_the_formula():
    def naive(features, w):
        grid = features.reshape(4, 3, 6)
        total = 0.0
        for y in range(4):
            for x in range(3):
                near = grid[max(0, y - 1) : y + 2, max(0, x - 1) : x + 2]
                smooth = near.reshape(-1, 6).mean(0)
                projected = smooth @ w["kernel"] + w["bias"]
                total = total + np.linalg.norm(grid[y, x]) * projected
        return total / 12

    layer = layers.SmoothedMatchKernelPooling(projection_size=5)
    check(layer, naive)


def test_smoothed_match_kernel_weighs_without_gradient():
    from keras import ops

    from tests.gradients import gradients

    tokens = FEATURES.reshape(2, 12, 6)
    layer = layers.SmoothedMatchKernelPooling()
    (found,) = gradients(lambda x: ops.sum(layer(x)), tokens)
    lengths = np.linalg.norm(tokens, axis=-1, keepdims=True)
    expected = np.repeat(lengths / 12, 6, axis=-1)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
