"""Cross-half prediction against the formulas of each half, in float64."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_gsp.ops.ridge import cross_half_prediction
from tests.compiled import on_tensorflow
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
def test_equals_the_primal_solution_of_each_half(num_prototypes, batch):
    inputs = batch_of(0, batch, num_prototypes)
    found = cross_half_prediction(*inputs, ridge=RIDGE)
    np.testing.assert_allclose(
        np.asarray(found), naive_prediction(*inputs), rtol=0, atol=1e-10
    )


@on_tensorflow
def test_is_accurate_in_float32():
    histograms, targets, first_half = batch_of(0, 128, 64, 16, "float16")
    expected = naive_prediction(
        histograms.astype("float64"), targets.astype("float64"), first_half
    )
    found = cross_half_prediction(histograms, targets, first_half, ridge=RIDGE)
    assert keras.backend.standardize_dtype(found.dtype) == "float32"
    # MATH: condition number at most 1 + 128 / 0.05, a few ulp on top.
    error = np.abs(np.asarray(found) - expected).max()
    assert error <= 1e-4 * np.abs(expected).max()


@pytest.mark.usefixtures("double_precision")
def test_gradients_equal_central_differences():
    histograms, targets, first_half = batch_of(1)
    weights = np.random.default_rng(2).normal(size=targets.shape)

    def scalar(histograms, targets):
        predicted = cross_half_prediction(
            histograms, targets, first_half, ridge=RIDGE
        )
        return ops.sum(ops.convert_to_tensor(weights) * predicted)

    # Differences with step 1e-6 carry about nine digits.
    assert slope_errors(scalar, histograms, targets) < 1e-6


@on_tensorflow
def test_empty_half_predicts_zero():
    histograms, targets, _ = batch_of(0)
    found = cross_half_prediction(
        histograms, targets, np.ones(len(targets), bool), ridge=RIDGE
    )
    np.testing.assert_array_equal(np.asarray(found), np.zeros_like(targets))
