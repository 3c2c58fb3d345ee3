"""Unit sphere, unit ball and distances, exact where it matters."""

import numpy as np
import pytest
from keras import ops

from keras_gsp.ops.distances import ball_distances, pairwise_distances
from keras_gsp.ops.normalization import unit_ball, unit_sphere
from tests.gradients import gradients


@pytest.mark.parametrize("project", [unit_sphere, unit_ball])
def test_zero_huge_and_tiny_vectors_stay_finite(project):
    given = np.zeros((4, 3), "float32")
    given[1:, 0] = (1e20, 1e-30, 1e37)

    def loss(given):
        return ops.sum(
            ops.multiply(project(given), np.arange(3, dtype="float32"))
        )

    projected = np.asarray(project(given))
    assert not projected[0].any()
    np.testing.assert_allclose(projected[[1, 3], 0], 1.0, rtol=1e-6)
    assert np.isfinite(projected).all()
    assert np.isfinite(gradients(loss, given)[0]).all()


def test_duplicates_have_distance_and_gradient_zero_and_nan_is_passed_on():
    vectors = np.random.default_rng(0).normal(size=(50, 128))
    vectors = (100.0 * vectors).astype("float32")
    distances = np.asarray(pairwise_distances(vectors, vectors))
    assert not np.diagonal(distances).any()
    assert (distances[~np.eye(50, dtype=bool)] > 0).all()
    equal = np.ones((1, 2, 3), "float32")
    (found,) = gradients(lambda x: ops.sum(pairwise_distances(x, x)), equal)
    np.testing.assert_array_equal(found, 0.0)
    vectors[1, 2] = np.nan
    distances = np.asarray(pairwise_distances(vectors, vectors[5:]))
    assert np.isnan(distances[1]).all()
    assert np.isfinite(distances[2:]).all()


def test_ball_distances_of_huge_and_tiny_vectors_are_finite():
    """Beyond 1e19, where squares overflow, products count as 0."""
    one = np.array([[3.0, 4.0]], "float32")
    sizes = np.array([[1e-30], [1e15], [1e18], [1e25], [1e30]], "float32")
    found = np.asarray(ball_distances(0.2 * one * sizes, 0.2 * one))
    np.testing.assert_allclose(found[:3, 0], [1.0, 0.0, 0.0], atol=1e-3)
    np.testing.assert_allclose(found[3:, 0], np.sqrt(2.0), rtol=1e-6)
    (slopes,) = gradients(
        lambda x: ops.sum(ball_distances(x, 0.2 * one)), 0.2 * one * sizes
    )
    assert np.isfinite(slopes).all()
