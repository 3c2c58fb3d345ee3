"""Sinkhorn scaling: marginals, columns without mass, extreme scores."""

import numpy as np
import pytest

from keras_gsp.ops.sinkhorn import sinkhorn_plan
from tests.compiled import on_tensorflow


def scores_of(shape=(2, 3, 5)):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def test_sinkhorn_reaches_both_marginals_and_ignores_columns_without_mass():
    scores = scores_of()
    rows = np.array([0.2, 0.5, 0.3])
    columns = np.array([0.4, 0.3, 0.3, 0.0, 0.0])
    logs = np.where(columns > 0, np.log(np.maximum(columns, 1e-30)), -1e9)
    plan = np.asarray(
        sinkhorn_plan(scores, np.log(rows), logs, num_iterations=50)
    )
    np.testing.assert_allclose(plan.sum(1), [columns] * 2, atol=1e-6)
    np.testing.assert_allclose(plan.sum(2), [rows] * 2, atol=1e-5)
    without = sinkhorn_plan(
        scores[..., :3], np.log(rows), logs[:3], num_iterations=50
    )
    np.testing.assert_allclose(plan[..., :3], without, atol=1e-6)


def test_sinkhorn_neither_over_nor_underflows():
    scores = 1e4 * scores_of()
    masses = np.log(np.full(3, 1 / 3)), np.log(np.full(5, 1 / 5))
    plan = sinkhorn_plan(scores, *masses, num_iterations=5)
    plan = np.asarray(plan)
    assert np.isfinite(plan).all()
    np.testing.assert_allclose(plan.sum(1), 0.2, rtol=1e-3)


@on_tensorflow
def test_sinkhorn_without_a_round_is_refused():
    with pytest.raises(ValueError, match="num_iterations=0"):
        sinkhorn_plan(np.ones((1, 2, 2)), [0.0], [0.0], num_iterations=0)
