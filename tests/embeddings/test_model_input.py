import warnings

import keras
import numpy as np
import pytest

from keras_gsp.embeddings.model_input import input_of


def functional():
    inputs = keras.Input((4,), name="image")
    return keras.Model(inputs, keras.layers.Dense(3)(inputs))


def sequential():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])


@pytest.mark.parametrize("build", [functional, sequential])
def test_a_model_that_begins_alike_is_called_alike(build):
    model = build()
    rows = np.random.default_rng(0).normal(size=(2, 4)).astype("float32")
    part = keras.Model(input_of(model), 2 * model.layers[-1].output)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = part(rows)
    np.testing.assert_allclose(found, 2 * np.asarray(model(rows)), rtol=1e-6)


def test_a_structure_stays_one():
    inputs = {"a": keras.Input((4,)), "b": keras.Input((4,))}
    model = keras.Model(inputs, keras.layers.Add()([*inputs.values()]))
    assert {*input_of(model)} == {"a", "b"}
    part = keras.Model(input_of(model), model.output)
    rows = {"a": np.ones((2, 4)), "b": np.full((2, 4), 2.0)}
    np.testing.assert_array_equal(part(rows), np.full((2, 4), 3.0))
