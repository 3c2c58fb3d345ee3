"""Zero-shot loss against a loop over samples and classes, in float64."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.losses.zero_shot import ZeroShotLoss
from tests.gradients import slope_errors
from tests.losses.test_cross_batch import RIDGE, naive_express

NUM_CLASSES = 7
SCALE = 2.5


def batch_of(seed=0, num_prototypes=5, size=3):
    rng = np.random.default_rng(seed)
    labels = np.array([6, 0, 2, 0, 6, 2, 5, 5, 5])
    first_half = np.isin(labels, [6, 2])
    histograms = rng.dirichlet(np.ones(num_prototypes), size=len(labels))
    table = rng.normal(size=(NUM_CLASSES, size))
    return labels, histograms, table, first_half


def naive_loss(labels, histograms, table, first_half, scale=SCALE):
    losses = []
    predicted = naive_express(histograms, table[labels], first_half)
    for label, row in zip(labels, predicted, strict=True):
        logits = [scale * row @ vector for vector in table]
        losses.append(np.log(np.sum(np.exp(logits))) - logits[label])
    return np.mean(losses)


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_value_and_gradient_equal_naive_loop(dtype):
    rtol = 1e-10 if dtype == "float64" else 1e-4
    for scale, num_prototypes in ((1.0, 3), (9.5, 3), (1.0, 20), (9.5, 20)):
        labels, histograms, table, first_half = batch_of(0, num_prototypes)
        given = histograms.astype(dtype), table.astype(dtype)
        loss = ZeroShotLoss(RIDGE, scale)

        def scalar(*given, loss=loss, labels=labels, half=first_half):
            return loss.compute(labels, *given, half)

        found = scalar(*given)
        exact = [array.astype("float64") for array in given]
        expected = naive_loss(labels, *exact, first_half, scale)
        computed = "float64" if dtype == "float64" else "float32"
        assert keras.backend.standardize_dtype(found.dtype) == computed
        np.testing.assert_allclose(float(found), expected, rtol=rtol)
        if dtype == "float64" and scale == 1.0:
            # Differences with step 1e-6 carry about nine digits.
            assert slope_errors(scalar, *given) < 1e-6


def test_halves_are_those_of_the_seed():
    labels, histograms, table, _ = batch_of()
    loss = ZeroShotLoss()
    # Without a seed they are drawn anew.
    drawn = gsp.ops.class_disjoint_halves(labels, seed=4)
    found = ZeroShotLoss(seed=4).compute(labels, histograms, table)
    assert float(found) == float(loss.compute(labels, histograms, table, drawn))
    values = {float(loss.compute(labels, histograms, table)) for _ in range(8)}
    assert len(values) > 1
