"""Recursive prototypes against the batch solution of the whole stream."""

import numpy as np
import pytest

from keras_gsp.ops.recursive_prototypes import recursive_prototypes
from tests.compiled import on_tensorflow

RIDGE = 0.3


def stream(num_prototypes, batch=3, steps=5):
    rng = np.random.default_rng(0)
    return [
        (
            rng.dirichlet(np.ones(num_prototypes), size=batch),
            rng.normal(size=(batch, 2)),
        )
        for _ in range(steps)
    ]


def batch_solution(batches, memory):
    """(2.5): all batches at once, the older ones weighted less."""
    size = batches[0][0].shape[1]
    information, weighted = RIDGE * np.eye(size), 0.0
    for k, (histograms, targets) in enumerate(batches):
        weight = memory ** (len(batches) - 1 - k)
        information = information + weight * histograms.T @ histograms
        weighted = weighted + weight * histograms.T @ targets
    return np.linalg.solve(information, weighted), information


def step(batch, state=None, memory=1.0):
    return recursive_prototypes(*batch, state, ridge=RIDGE, memory=memory)


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("memory", [0.5, 0.9, 1.0])
@pytest.mark.parametrize("num_prototypes", [2, 8])
def test_equals_the_batch_solution_at_every_step(memory, num_prototypes):
    batches, state = stream(num_prototypes), None
    for count, batch in enumerate(batches, 1):
        state = step(batch, state, memory)
        expected = batch_solution(batches[:count], memory)
        for found, other in zip(state, expected, strict=True):
            np.testing.assert_allclose(np.asarray(found), other, atol=1e-10)


@on_tensorflow
def test_wrong_arguments_are_refused():
    histograms, targets = batch = stream(4)[0]
    for memory in (0.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match=f"`memory`.*memory={memory}"):
            step(batch, None, memory)
    with pytest.raises(ValueError, match="`ridge` must be.*ridge=0"):
        recursive_prototypes(*batch, ridge=0.0)
    with pytest.raises(ValueError, match="`histograms` and `targets`"):
        step((histograms[1:], targets))
