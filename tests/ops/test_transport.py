"""Partial transport: marginals, limits, values, gradients, edges, errors."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_gsp.ops.transport import partial_transport
from tests.compiled import not_on_jax
from tests.gradients import central_differences, gradients, weighted_sum
from tests.ops import transport_oracle as oracle

TEMPERATURES = (0.05, 0.5, 5.0, 20.0, 100.0, 1000.0)
RATIOS = (0.001, 0.05, 0.3, 0.5, 0.9, 0.99, 0.999, 1.0)
SIZES = list(itertools.product((1, 8, 64), (1, 4, 49, 196)))
if keras.backend.backend() == "jax":  # It compiles for each size.
    TEMPERATURES, RATIOS, SIZES = (100.0,), (0.3, 1.0), [(8, 49)]
CASES = [
    (RATIOS[position % len(RATIOS)], *size)
    for position, size in enumerate(SIZES)
]


def transport(costs, ratio=0.3, eps=5.0, **options):
    return partial_transport(
        costs, transport_ratio=ratio, inverse_temperature=eps, **options
    )


def squares(costs, *arguments, **options):
    """A loss whose gradient depends on all that is computed."""
    residual, plan = transport(costs, *arguments, **options)
    return ops.sum(ops.square(plan)) + ops.sum(ops.square(residual))


def tolerance(dtype, eps):
    """Rounding of the costs alone moves float32 results by eps * 6e-8."""
    if dtype == "float64":
        return 1e-10
    return {100.0: 1e-4, 1000.0: 2e-3}.get(eps, 1e-5)


def assert_close(found, expected, relative):
    found = np.asarray(found, "float64")
    scale = max(np.abs(expected).max(), 1e-30)
    assert np.abs(found - expected).max() <= relative * scale


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bound", [None, 2.0])
@pytest.mark.parametrize("eps", TEMPERATURES)
def test_forward_equals_float64_root_finder(
    eps, bound, dtype, double_precision
):
    for ratio, num_prototypes, num_features in CASES:
        costs = oracle.ball_costs(1, num_prototypes, num_features)
        residual, plan = transport(
            costs.astype(dtype), ratio, eps, cost_bound=bound
        )
        expected = oracle.partial_transport(costs, ratio, eps)
        assert_close(plan, expected[1], tolerance(dtype, eps))
        assert_close(residual, expected[0], tolerance(dtype, eps))


@not_on_jax
@pytest.mark.parametrize("eps", TEMPERATURES)
def test_marginals_and_moved_mass_are_exact(eps):
    for ratio in RATIOS:
        costs = np.stack([oracle.ball_costs(s, 8, 49) for s in range(3)])
        residual, plan = map(
            np.asarray, transport(costs.astype("float32"), ratio, eps)
        )
        columns = residual + plan.sum(axis=-2)
        np.testing.assert_allclose(columns, 1 / 49, rtol=3e-6)
        np.testing.assert_allclose(plan.sum(axis=(-2, -1)), ratio, rtol=3e-6)
    np.testing.assert_array_equal(residual, np.zeros((3, 49)))  # Of ratio 1.


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("eps", TEMPERATURES)
def test_cost_gradient_equals_corrected_proposition(
    eps, dtype, double_precision
):
    for ratio, num_prototypes, num_features in CASES:
        costs = oracle.ball_costs(2, num_prototypes, num_features)
        upstream = np.random.default_rng(3).normal(size=costs.shape)
        weights = upstream.astype(dtype)

        def loss(costs, ratio=ratio, weights=weights):
            _, plan = transport(costs, ratio, eps)
            return weighted_sum(plan, weights)

        (found,) = gradients(loss, costs.astype(dtype))
        expected = oracle.plan_gradient(costs, ratio, eps, upstream)
        # Differences of near-equal terms: scaled by what is summed.
        summed = eps * ratio * np.abs(upstream).max() / num_features
        scale = max(summed, np.abs(expected).max())
        assert np.abs(found - expected).max() <= tolerance(dtype, eps) * scale


@pytest.mark.parametrize("eps", TEMPERATURES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ratio_gradient_equals_closed_form(eps, dtype, double_precision):
    for ratio in RATIOS[:-1]:
        costs = oracle.ball_costs(4, 8, 49)
        upstream = np.random.default_rng(5).normal(size=costs.shape)

        def loss(ratio, costs=costs, upstream=upstream):
            _, plan = transport(costs.astype(dtype), ratio, eps)
            return weighted_sum(plan, upstream.astype(dtype))

        (found,) = gradients(loss, np.array(ratio, dtype))
        expected = oracle.ratio_gradient(costs, ratio, eps, upstream)
        # The threshold of a sharp selection moves fast with the ratio.
        relative = 1e-9 if dtype == "float64" else max(1e-3, eps * 5e-5)
        assert abs(found - expected) <= relative * np.abs(upstream).max()


@not_on_jax
def test_gradient_equals_central_differences_also_at_ties(double_precision):
    costs = oracle.ball_costs(6, 3, 5)
    costs[:, 1] = costs[:, 0]
    costs[2] = 0.0
    upstream = np.random.default_rng(7).normal(size=(4, 5))
    upstream = ops.convert_to_tensor(upstream)

    def loss(costs, ratio):
        residual, plan = transport(costs, ratio, 6.0)
        return ops.sum(plan * upstream[:3]) + ops.sum(residual * upstream[3])

    inputs = costs, np.array(0.37)
    for found, expected in zip(
        gradients(loss, *inputs),
        central_differences(loss, *inputs),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, atol=2e-9)


@not_on_jax
@pytest.mark.parametrize("bound", [None, 2.0])
@pytest.mark.parametrize("ratio", [0.3, 1.0])
def test_mask_equals_leaving_features_out(ratio, bound):
    costs = oracle.ball_costs(0, 8, 30).astype("float32")
    mask = np.random.default_rng(0).random(30) < 0.6
    found = transport(costs, ratio, 20.0, mask=mask, cost_bound=bound)
    expected = transport(costs[:, mask], ratio, 20.0, cost_bound=bound)
    for one, other in zip(found, expected, strict=True):
        one = np.asarray(one)
        np.testing.assert_allclose(one[..., mask], other, rtol=1e-5, atol=1e-8)
        assert not one[..., ~mask].any()
    # Nor do they, or rows without any, get a gradient.
    masks = np.stack([mask, 0 * mask]).astype(bool)
    (slopes,) = gradients(
        lambda x: squares(x, ratio, mask=masks), np.stack([costs, costs])
    )
    assert np.isfinite(slopes).all()
    assert not np.swapaxes(slopes, 1, 2)[~masks].any()
    assert slopes[0][:, mask].any()


@not_on_jax
def test_nan_stays_in_its_row():
    costs = np.stack([oracle.ball_costs(s, 4, 9) for s in range(3)])
    costs = costs.astype("float32")
    bad = costs.copy()
    bad[1, 2, 3] = np.nan
    clean, found = (np.asarray(transport(x)[1]) for x in (costs, bad))
    np.testing.assert_array_equal(found[[0, 2]], clean[[0, 2]])
    assert np.isnan(found[1]).any()


@not_on_jax
def test_whole_numbers_of_features_and_unbounded_costs_are_solved():
    gap = np.repeat([[0.0, 2.0]], 4, axis=1).astype("float32")
    for ratio in (0.25, 0.5):
        (found,) = gradients(lambda x, r=ratio: squares(x, r, 1e3), gap)
        assert np.isfinite(found).all()
        np.testing.assert_allclose(
            ops.sum(transport(gap, ratio, 1e3)[1]), ratio, rtol=1e-5
        )
    costs = np.random.default_rng(0).normal(size=(5, 40, 100))
    for scale in (1.0, 50.0, 1e3):
        _, plan = transport((scale * costs).astype("float32"), 0.3, 20.0)
        np.testing.assert_allclose(ops.sum(plan, (-2, -1)), 0.3, rtol=1e-5)
