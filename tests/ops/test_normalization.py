"""Unit sphere and unit ball, also at zero and far away."""

import numpy as np
import pytest
from keras import ops

from keras_gsp.ops.normalization import normalize, unit_ball, unit_sphere
from tests.compiled import on_tensorflow
from tests.gradients import gradients, slope_errors


def some_vectors():
    scales = np.array([[0.1], [0.4], [1.0], [3.0], [50.0]])
    return np.random.default_rng(2).normal(size=(5, 4)) * scales


def test_sphere_divides_by_the_norm():
    given = some_vectors()
    expected = given / np.linalg.norm(given, axis=-1, keepdims=True)
    np.testing.assert_allclose(unit_sphere(given), expected, rtol=1e-6)


def test_ball_projects_only_what_is_outside():
    given = some_vectors()
    norms = np.linalg.norm(given, axis=-1, keepdims=True)
    np.testing.assert_allclose(
        unit_ball(given), given / np.maximum(1.0, norms), rtol=1e-6
    )


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


@pytest.mark.parametrize("project", [unit_sphere, unit_ball])
def test_gradient_equals_central_differences(project, double_precision):
    upstream = np.random.default_rng(1).normal(size=(5, 4))

    def loss(given):
        return ops.sum(ops.multiply(project(given), upstream))

    assert slope_errors(loss, some_vectors()) < 1e-7


@on_tensorflow
def test_none_changes_nothing_but_the_precision():
    given = some_vectors().astype("float16")
    np.testing.assert_array_equal(
        normalize(given, None), given.astype("float32")
    )
