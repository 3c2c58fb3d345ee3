"""Smooth ranks: ranks in the limit, and the gradient of their definition."""

import keras
import numpy as np

from keras_gsp.ops.soft_ranks import soft_ranks
from tests.compiled import compiled
from tests.gradients import central_differences, gradients


def problem():
    random = np.random.default_rng(0)
    similarities = random.uniform(-1, 1, size=(4, 7))
    counted = (random.random((4, 7)) < 0.8).astype("float64")
    targets = random.random((4, 7)) < 0.4
    targets[2] = False
    return similarities, counted, targets


def by_loops(similarities, counted, targets, temperature):
    ranks = np.zeros_like(similarities)
    for a, p in np.argwhere(targets):
        gaps = (similarities[a] - similarities[a, p]) / temperature
        above = counted[a] / (1.0 + np.exp(-gaps))
        above[p] = 0.0
        ranks[a, p] = 1.0 + above.sum()
    return ranks


def test_ranks_are_those_of_the_definition(double_precision):
    similarities, counted, targets = problem()
    found = soft_ranks(similarities, counted, targets, 0.2)
    np.testing.assert_allclose(
        found, by_loops(similarities, counted, targets, 0.2), rtol=1e-12
    )


def test_a_low_temperature_gives_the_rank_itself():
    similarities, _, targets = problem()
    found = soft_ranks(
        similarities.astype("float32"), np.ones((4, 7)), targets, 1e-4
    )
    order = np.argsort(np.argsort(-similarities, axis=1), axis=1) + 1
    np.testing.assert_allclose(found, np.where(targets, order, 0), atol=1e-5)


def test_gradient_is_that_of_the_definition(double_precision):
    similarities, counted, targets = problem()
    weights = np.random.default_rng(1).normal(size=(4, 7))

    def total(s):
        ranks = soft_ranks(s, counted, targets, 0.2)
        return keras.ops.sum(weights * ranks)

    (expected,) = central_differences(
        lambda s: np.sum(weights * by_loops(s, counted, targets, 0.2)),
        similarities,
    )
    for function in (total, compiled(total)):
        (found,) = gradients(function, similarities)
        np.testing.assert_allclose(found, expected, atol=1e-7)
