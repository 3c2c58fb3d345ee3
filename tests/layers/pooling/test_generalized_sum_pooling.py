"""Values, laws and gradients of GSP; its contract is in test_poolings."""

import keras
import numpy as np
import pytest

from keras_gsp.layers import GeneralizedSumPooling
from tests.compiled import first_on_jax, not_on_jax
from tests.gradients import slope_errors, weighted_sum
from tests.ops import transport_oracle as oracle

SHAPES = [(3, 5, 4, 6), (3, 20, 6)]


def features_of(shape, seed=0, dtype="float32"):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def naive_transport(features, prototypes, ratio, eps):
    """One sample in float64: features (n, c), prototypes (m, c)."""
    projected = [
        vectors / np.maximum(1, np.linalg.norm(vectors, axis=1))[:, None]
        for vectors in (features, prototypes)
    ]
    costs = np.linalg.norm(projected[1][:, None] - projected[0], axis=-1)
    return oracle.partial_transport(costs, ratio, eps)


@pytest.mark.parametrize("shape", first_on_jax(SHAPES))
@pytest.mark.parametrize("ratio", first_on_jax([0.3, 0.05, 1.0]))
def test_equals_naive_loop(shape, ratio):
    features = features_of(shape)
    layer = GeneralizedSumPooling(7, ratio, 8.0, return_histogram=True)
    pooled, histogram = layer(features)
    weights, residuals, plans = (
        np.asarray(maps(features))
        for maps in (
            layer.pooling_weights,
            layer.residual,
            layer.transport_plan,
        )
    )
    assert weights.shape == residuals.shape == shape[:-1]
    assert plans.shape == (*shape[:-1], 7)
    prototypes = np.asarray(layer.prototypes, "float64")
    for sample in range(shape[0]):
        flat = features[sample].reshape(20, -1).astype("float64")
        residual, plan = naive_transport(flat, prototypes, ratio, 8.0)
        chosen = (1 / 20 - residual) / ratio
        for found, expected in (
            (weights[sample].ravel(), chosen),
            (residuals[sample].ravel(), residual),
            (plans[sample].reshape(20, 7), plan.T),
            (pooled[sample], chosen @ flat),
            (histogram[sample], plan.sum(axis=1) / ratio),
        ):
            np.testing.assert_allclose(found, expected, atol=1e-5)


@not_on_jax
def test_a_learned_ratio_starts_where_it_was_set():
    features, layer = features_of(SHAPES[1]), GeneralizedSumPooling(7, 0.3)
    pooled = layer(features)
    learned = GeneralizedSumPooling(7, 0.3, learn_ratio=True)
    learned.build(SHAPES[1])
    learned.prototypes.assign(layer.prototypes)
    np.testing.assert_allclose(learned(features), pooled, rtol=1e-4, atol=1e-6)
    assert abs(float(learned.ratio) - 0.3) < 1e-7


@not_on_jax
@pytest.mark.parametrize("power", [1.0, 3.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_values_are_pooled_where_features_are_matched(shape, power):
    features, values = features_of(shape), features_of((*shape[:-1], 9), 1)
    layer = GeneralizedSumPooling(
        7, 0.3, power=power, add_max=True, return_histogram=True
    )
    pooled, histogram = layer(features, values=values)
    weights = np.asarray(layer.pooling_weights(features)).reshape(3, 20)
    flat = values.reshape(3, 20, 9).astype("float64")
    for sample in range(3):
        terms = weights[sample][:, None] * flat[sample]
        if power > 1.0:
            terms = np.maximum(20 * terms, 1e-6) ** power / 20
        expected = terms.sum(axis=0) ** (1 / power) + flat[sample].max(axis=0)
        np.testing.assert_allclose(pooled[sample], expected, atol=1e-4)
    np.testing.assert_allclose(histogram, layer(features)[1], atol=1e-6)


@not_on_jax
def test_masked_features_and_values_may_hold_anything():
    features, values = features_of(SHAPES[1]), features_of((3, 20, 9), 1)
    mask = np.broadcast_to(np.arange(20) < 11, (3, 20))
    layer = GeneralizedSumPooling(
        7, power=2.0, add_max=True, return_histogram=True
    )
    expected = layer(features[:, :11], values=values[:, :11])
    for token, value in ((11, np.nan), (12, np.inf), (13, -np.inf)):
        features[:, token] = values[:, token] = value
    found = layer(features, mask=mask, values=values)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)

    for one in (
        layer.pooling_weights(features, mask),
        layer.residual(features, mask),
        layer.transport_plan(features, mask),
    ):
        assert np.isfinite(np.asarray(one)).all()
        assert not np.asarray(one)[:, 11:].any()


@pytest.mark.parametrize("ratio", first_on_jax([0.3, 1.0]))
@pytest.mark.parametrize("power", first_on_jax([2.0, 1.0]))
def test_gradient_equals_differences(ratio, power, double_precision):
    layer = GeneralizedSumPooling(
        4, ratio, 6.0, power=power, return_histogram=True, dtype="float64"
    )
    generator = np.random.default_rng(1)
    arrays = [
        0.4 + 0.3 * features_of((2, 6, 3), dtype="float64"),
        generator.normal(size=(2, 6, 5)),
        0.5 * generator.normal(size=(4, 3)),
    ]
    layer.build(arrays[0].shape)
    upstream = generator.normal(size=(2, 5)), generator.normal(size=(2, 4))

    def loss(features, values, prototypes):
        mapping = [(layer.prototypes, prototypes)]
        with keras.StatelessScope(state_mapping=mapping):
            pooled, histogram = layer(features, values=values)
        of_pooled = weighted_sum(pooled, upstream[0])
        return of_pooled + weighted_sum(histogram, upstream[1])

    for number in range(3):

        def of_one(one, number=number):
            return loss(*arrays[:number], one, *arrays[number + 1 :])

        assert slope_errors(of_one, arrays[number]) < 1e-6, number


@not_on_jax
def test_affine_costs_match_mapped_features_and_pool_them_as_they_are():
    features = features_of((3, 20, 6))
    layer = GeneralizedSumPooling(7, 0.3, 8.0, use_affine_costs=True)
    layer.build(features.shape)
    layer.matching_bias.assign(np.linspace(-0.2, 0.3, 6))
    layer.adapt(features)
    kernel, bias = map(np.asarray, (layer.matching_kernel, layer.matching_bias))
    mapped = features @ kernel + bias
    plain = GeneralizedSumPooling(7, 0.3, 8.0)
    plain.adapt(mapped)
    np.testing.assert_allclose(plain.prototypes, layer.prototypes, atol=1e-6)
    np.testing.assert_allclose(
        layer(features), plain(mapped, values=features), atol=1e-5
    )
