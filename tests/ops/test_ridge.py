"""Cross-half prediction against the formulas of each half, in float64."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_gsp.ops.ridge import cross_half_prediction
from tests.compiled import not_on_jax
from tests.gradients import slope_errors

RIDGE = 0.05


def batch_of(seed, batch=9, num_prototypes=5, size=3, dtype="float64"):
    rng = np.random.default_rng(seed)
    histograms = rng.dirichlet(np.ones(num_prototypes), size=batch)
    targets = rng.normal(size=(batch, size))
    first_half = rng.permutation(np.arange(batch) < batch // 2)
    return histograms.astype(dtype), targets.astype(dtype), first_half


def naive_prediction(histograms, targets, first_half, ridge=RIDGE):
    """V_k = Y_k Z_k' (Z_k Z_k' + eps I)^-1 of one half, for the other."""
    predicted = np.zeros_like(targets)
    for fitted in (first_half, ~first_half):
        z, y = histograms[fitted].T, targets[fitted].T
        v = y @ z.T @ np.linalg.inv(z @ z.T + ridge * np.eye(len(z)))
        predicted[~fitted] = (v @ histograms[~fitted].T).T
    return predicted


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize(
    ("num_prototypes", "batch"), [(2, 16), (5, 9), (30, 2)]
)
def test_value_and_gradient_of_the_primal_solution(num_prototypes, batch):
    histograms, targets, first_half = batch_of(0, batch, num_prototypes)
    weights = np.random.default_rng(2).normal(size=targets.shape)

    def predicted(*given):
        return cross_half_prediction(*given, first_half, ridge=RIDGE)

    np.testing.assert_allclose(
        predicted(histograms, targets),
        naive_prediction(histograms, targets, first_half),
        atol=1e-10,
    )

    def scalar(*given):
        return ops.sum(ops.convert_to_tensor(weights) * predicted(*given))

    # Differences with step 1e-6 carry about nine digits.
    assert slope_errors(scalar, histograms, targets) < 1e-6


@not_on_jax
def test_is_accurate_in_float32_and_zero_for_an_empty_half():
    histograms, targets, first_half = batch_of(0, 128, 64, 16, "float16")
    expected = naive_prediction(
        histograms.astype("float64"), targets.astype("float64"), first_half
    )
    found = cross_half_prediction(histograms, targets, first_half, ridge=RIDGE)
    assert keras.backend.standardize_dtype(found.dtype) == "float32"
    # The condition number at most 1 + 128 / 0.05, a few ulp on top.
    error = np.abs(np.asarray(found) - expected).max()
    assert error <= 1e-4 * np.abs(expected).max()
    empty = first_half | True
    found = cross_half_prediction(histograms, targets, empty, ridge=RIDGE)
    np.testing.assert_array_equal(found, 0.0 * targets)
