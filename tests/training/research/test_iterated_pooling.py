"""The paper's iteration converges to what the package solves exactly."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_gsp as gsp

if keras.backend.backend() != "tensorflow":
    pytest.skip("float64 on TensorFlow", allow_module_level=True)

from training.research.iterated_pooling import (
    iterated_transport,
    iterated_transport_in_closed_form,
)

PROBLEM = {"transport_ratio": 0.3, "inverse_temperature": 5.0}


def gradient_function(solve):
    """Value and gradient for an upstream gradient."""

    def run(costs, pull):
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(costs)
            value = solve(costs)
        return value, tape.gradient(value, costs, output_gradients=pull)

    return run


def joined(solve):
    def both(costs):
        residual, plan = solve(costs)
        return ops.concatenate([residual[..., None, :], plan], axis=-2)

    return both


@pytest.fixture
def costs_and_pull():
    rng = np.random.default_rng(0)
    costs, pull = rng.uniform(0.0, 2.0, (2, 3, 7)), rng.normal(size=(2, 4, 7))
    return ops.convert_to_tensor(costs), ops.convert_to_tensor(pull)


def test_enough_rounds_give_the_exact_plan_and_gradient(costs_and_pull):
    """By autodiff and in the paper's closed form."""
    options = PROBLEM | {"num_rounds": 40}
    exact = joined(lambda c: gsp.ops.partial_transport(c, **PROBLEM))
    expected = gradient_function(exact)(*costs_and_pull)
    for solve in (
        joined(lambda c: iterated_transport(c, **options)),
        lambda c: iterated_transport_in_closed_form(c, **options),
    ):
        found = gradient_function(solve)(*costs_and_pull)
        for one, other in zip(expected, found, strict=True):
            np.testing.assert_allclose(other, one, atol=1e-12)
