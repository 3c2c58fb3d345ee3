"""Batches of arrays, a model's input and its embedding."""

import warnings

import keras
import numpy as np
import pytest

from keras_gsp._encoding import embedding_of, input_of
from keras_gsp._labeled_batches import batches_of

IMAGES = np.random.default_rng(0).normal(size=(9, 4)).astype("float32")
LABELS = np.arange(9) // 2


def test_arrays_may_come_in_another_order_and_iterables_in_their_own():
    found = list(batches_of((IMAGES, LABELS), 4, np.arange(9)[::-1]))
    assert [len(labels) for _, labels in found] == [4, 4, 1]
    assert (
        np.concatenate([x[1] for x in found]).tolist() == LABELS.tolist()[::-1]
    )
    assert list(batches_of([1, 2], 4)) == [1, 2]


@pytest.mark.parametrize(
    "outputs", [np.ones((2, 8)), (None, 8), [2, 8], (2, 8)]
)
def test_one_tensor_or_shape_is_the_embedding(outputs):
    assert embedding_of(outputs) is outputs
    both = {"embedding": outputs, "histogram": np.ones((2, 4))}
    assert embedding_of(both) is outputs


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
