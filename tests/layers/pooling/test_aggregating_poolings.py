"""Values of the poolings that add, sort, solve or assign features."""

import numpy as np
import pytest

from keras_gsp import layers
from tests.compiled import on_tensorflow
from tests.layers.pooling.test_attention_poolings import (
    FEATURES,
    check,
    relu,
    softmax,
)
from tests.layers.pooling.test_poolings import features_of


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

    def naive(features, w):
        return (
            features.mean(0) @ w["average_kernel"]
            + features.max(0) @ w["max_kernel"]
        )

    check(layers.AverageMaxPooling(projection_size=5), naive)


@pytest.mark.parametrize("count", [3, 12])
def test_generalized_max_solves_the_ridge_regression(count):
    # Fewer and more features than channels: both forms.
    features = features_of((2, count, 6))
    pooled = layers.GeneralizedMaxPooling(0.3)(features)
    for found, sample in zip(pooled, features.astype("float64"), strict=True):
        gram = sample.T @ sample + 0.3 * np.eye(6)
        expected = np.linalg.solve(gram, sample.sum(0))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@on_tensorflow
def test_generalized_max_counts_a_repeated_feature_once():
    features = features_of((1, 3, 6))
    repeated = np.concatenate([features, features[:, :1]], axis=1)
    layer = layers.GeneralizedMaxPooling(1e-4)
    np.testing.assert_allclose(layer(features), layer(repeated), atol=1e-3)


def test_weldon_equals_the_formula():
    def naive(features, w):
        ordered = np.sort(features, axis=0)
        return ordered[-3:].mean(0) + ordered[:2].mean(0)

    check(layers.WELDONPooling(3, 2), naive)


@on_tensorflow
def test_weldon_averages_what_a_short_mask_keeps():
    tokens = FEATURES.reshape(2, 12, 6)
    mask = np.arange(12) < 2
    pooled = layers.WELDONPooling(3, 3)(
        tokens, mask=np.broadcast_to(mask, (2, 12))
    )
    expected = 2.0 * tokens[:, :2].mean(1)
    np.testing.assert_allclose(pooled, expected, rtol=1e-5)


@on_tensorflow
@pytest.mark.parametrize("number", [8, 12])
def test_weldon_does_not_lose_a_nan_wherever_it_is(number):
    layer = layers.WELDONPooling(3, 2)
    mask = np.broadcast_to(np.arange(12) < number, (2, 12))
    for token in range(number):
        tokens = FEATURES.reshape(2, 12, 6).copy()
        tokens[0, token, 1] = np.nan
        for told in (mask, None):
            pooled = np.asarray(layer(tokens, mask=told))
            assert np.isnan(pooled[0, 1])
            assert np.isnan(pooled).sum() == 1


@on_tensorflow
def test_weldon_with_too_few_features_is_refused():
    with pytest.raises(ValueError, match="Received: 2 features"):
        layers.WELDONPooling(3)(features_of((2, 2, 6)))
    layer = layers.WELDONPooling(1, 13)
    layer.build((None, None, 6))
    with pytest.raises(ValueError, match="12 features"):
        layer(FEATURES)


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


@on_tensorflow
def test_otk_references_sum_to_average_pooling():
    # (B.1): all mass is moved, none is left out.
    pooled = np.asarray(layers.OTKPooling(3)(FEATURES)).reshape(2, 3, 6)
    expected = np.sqrt(3) * FEATURES.reshape(2, 12, 6).mean(1)
    np.testing.assert_allclose(pooled.sum(1), expected, atol=1e-5)


@on_tensorflow
@pytest.mark.parametrize("projection_size", [None, 4])
def test_otk_references_start_where_features_are(projection_size):
    """Four directions of any length: a reference each, on the unit sphere."""
    generator = np.random.default_rng(0)
    directions = np.eye(6, dtype="float32")[:4]
    lengths = generator.uniform(0.1, 20.0, (30, 9, 1)).astype("float32")
    features = lengths * directions[generator.integers(0, 4, (30, 9))]
    layer = layers.OTKPooling(4, projection_size=projection_size)
    layer.adapt(features, max_features=200, seed=1)
    seen = directions
    if projection_size:
        seen = directions @ np.asarray(layer.projection)
    near = unit(np.asarray(layer.references)) @ unit(seen).T
    np.testing.assert_allclose(np.sort(near.max(axis=1)), 1.0, atol=1e-5)
    assert sorted(near.argmax(axis=1)) == [0, 1, 2, 3]
    assert layer(features).shape == (30, 4 * (projection_size or 6))


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


@on_tensorflow
def test_optimal_transport_pooling_with_too_few_features_is_refused():
    layer = layers.OptimalTransportPooling(12)
    with pytest.raises(ValueError, match="Received: 12 features"):
        layer(FEATURES)
    layer = layers.OptimalTransportPooling(6)
    mask = np.broadcast_to(np.arange(12) < 6, (2, 12))
    with pytest.raises(ValueError, match="more features than clusters"):
        layer(FEATURES.reshape(2, 12, 6), mask=mask)
