"""Checks on values, known or traced."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_gsp.ops.labels import class_indices
from keras_gsp.ops.preconditions import concrete_value, require
from tests.compiled import compiled

needs_graph = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow",
    reason="only TensorFlow has graphs that are not compiled by XLA",
)


def doubled_if_positive(values):
    return 2 * require(
        values,
        ops.all(values > 0),
        "`values` must be positive.",
        values=values,
    )


def test_a_value_is_known_in_eager_mode_and_not_while_traced():
    seen = []

    def look(values):
        seen.append(concrete_value(values))
        return values

    look(ops.convert_to_tensor([1, 2]))
    compiled(look)(np.array([1, 2]))
    np.testing.assert_array_equal(seen[0], [1, 2])
    assert seen[1] is None


def test_a_broken_condition_says_what_was_received():
    np.testing.assert_array_equal(
        np.asarray(doubled_if_positive(np.array([1, 2]))), [2, 4]
    )
    message = r"`values` must be positive. Received: values=\[ 1 -2\]."
    with pytest.raises(ValueError, match=message):
        doubled_if_positive(np.array([1, -2]))


def test_compiled_by_xla_nothing_is_raised():
    found = compiled(doubled_if_positive)(np.array([1, -2]))
    np.testing.assert_array_equal(np.asarray(found), [2, -4])


@needs_graph
def test_in_a_graph_the_condition_is_raised_when_it_runs():
    import tensorflow as tf

    graph = tf.function(doubled_if_positive)
    np.testing.assert_array_equal(graph(tf.constant([1, 2])), [2, 4])
    with pytest.raises(tf.errors.InvalidArgumentError, match="be positive"):
        graph(tf.constant([1, -2]))


@pytest.mark.parametrize(
    "labels",
    [
        np.array([0, 2, 199], "uint8"),
        np.array([0, 2, 199], "int64"),
        np.array([0.0, 2.0, 199.0], "float32"),
        np.array([[0], [2], [199]], "int16"),
    ],
    ids=["uint8", "int64", "float32", "column"],
)
def test_whole_numbers_in_range_are_indices(labels):
    found = class_indices(labels, 200)
    assert keras.backend.standardize_dtype(found.dtype) == "int32"
    np.testing.assert_array_equal(np.asarray(found), [0, 2, 199])


@pytest.mark.parametrize("label", [-1, 200, 0.5, float("nan")])
def test_other_numbers_are_refused(label):
    with pytest.raises(ValueError, match=r"whole numbers in \[0, 200\)"):
        class_indices(np.array([0, label]), 200)


@pytest.mark.usefixtures("double_precision")
def test_high_bits_are_not_cut_off():
    with pytest.raises(ValueError, match="Received: labels=.4294967299"):
        class_indices(np.array([2**32 + 3]), 200)


@needs_graph
def test_what_is_computed_from_the_value_waits_for_the_condition():
    import tensorflow as tf

    @tf.function
    def product(rows):
        fits = require(
            rows, ops.shape(rows)[0] == 3, "`rows` must be three.", rows=rows
        )
        return ops.multiply(fits, np.ones(3, "float32"))

    # Without waiting, the product's own error came first once in a while.
    graph = product.get_concrete_function(tf.TensorSpec([None])).graph
    (last,) = (one for one in graph.get_operations() if one.type == "Mul")
    before, waiting = set(), [last]
    while waiting:
        operation = waiting.pop()
        before.add(operation.name)
        sources = [tensor.op for tensor in operation.inputs]
        waiting += sources + list(operation.control_inputs)
    assert any("Assert" in name for name in before)
    np.testing.assert_array_equal(product(tf.ones(3)), np.ones(3))
    with pytest.raises(tf.errors.InvalidArgumentError, match="be three"):
        product(tf.ones(2))
