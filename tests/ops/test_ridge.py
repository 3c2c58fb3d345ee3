"""Digits and edges of the cross-half prediction.

Values and gradients are those of the losses that use it.
"""

import keras
import numpy as np

from keras_gsp.ops.ridge import cross_half_prediction
from tests.compiled import not_on_jax

RIDGE = 0.05


def naive_prediction(histograms, targets, first_half):
    """V_k = Y_k Z_k' (Z_k Z_k' + eps I)^-1 of one half, for the other."""
    predicted = np.zeros_like(targets)
    for fitted in (first_half, ~first_half):
        z, y = histograms[fitted].T, targets[fitted].T
        v = y @ z.T @ np.linalg.inv(z @ z.T + RIDGE * np.eye(len(z)))
        predicted[~fitted] = (v @ histograms[~fitted].T).T
    return predicted


@not_on_jax
def test_is_accurate_in_float32_and_zero_for_an_empty_half():
    rng = np.random.default_rng(0)
    histograms = rng.dirichlet(np.ones(64), size=128).astype("float16")
    targets = rng.normal(size=(128, 16)).astype("float16")
    first_half = rng.permutation(np.arange(128) < 64)
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
