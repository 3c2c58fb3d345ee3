"""Checks of values, known or traced."""

import numpy as np
import pytest
from keras import ops

from keras_gsp._checks import require
from tests.compiled import compiled, on_tensorflow, under_xla


def doubled_if_positive(values):
    return 2 * require(
        values, ops.all(values > 0), "`values` must be positive.", values=values
    )


def test_a_known_condition_raises_and_shows_what_was_received():
    np.testing.assert_array_equal(doubled_if_positive(np.array([1, 2])), [2, 4])
    message = r"`values` must be positive. Received: values=\[ 1 -2\]."
    with pytest.raises(ValueError, match=message):
        doubled_if_positive(np.array([1, -2]))


@under_xla
def test_compiled_by_xla_nothing_is_raised():
    found = compiled(doubled_if_positive)(np.array([1, -2]))
    np.testing.assert_array_equal(np.asarray(found), [2, -4])


@on_tensorflow
def test_in_a_graph_what_is_computed_waits_for_the_condition():
    import tensorflow as tf

    graph = tf.function(doubled_if_positive)
    np.testing.assert_array_equal(graph(tf.constant([1, 2])), [2, 4])
    with pytest.raises(tf.errors.InvalidArgumentError, match="be positive"):
        graph(tf.constant([1, -2]))

    @tf.function(input_signature=[tf.TensorSpec([None])])
    def product(rows):
        fits = require(
            rows, ops.shape(rows)[0] == 3, "`rows` must be three.", rows=rows
        )
        return ops.multiply(fits, np.ones(3, "float32"))

    # Without waiting, the error of the product may come first.
    with pytest.raises(tf.errors.InvalidArgumentError, match="be three"):
        product(tf.ones(2))
