"""Labels are checked, flattened and compared without losing digits."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.ops.labels import (
    class_indices,
    first_occurrences,
    flat_labels,
    rows_of,
    same_class,
)
from tests.compiled import compiled, not_on_jax, under_xla


def test_labels_are_compared_and_numbered():
    same = same_class([1, 2], np.array([[2], [1], [2]]))
    np.testing.assert_array_equal(same, [[0, 1, 0], [1, 0, 1]])
    found = first_occurrences([7, 5, 7, 9, 5])
    np.testing.assert_array_equal(found, [0, 1, 0, 3, 1])


@not_on_jax  # JAX integers have 32 bits.
def test_eleven_digit_labels_do_not_collide_with_short_ones():
    labels = np.array([11126532855, 11126532856], "int64")
    wrapped = np.array([11126532855 % 2**32 - 2**32], "int32")
    assert not np.asarray(same_class(wrapped, labels)).any()


@under_xla
def test_compiled_labels_without_a_row_give_nan_rows():
    table = np.arange(6.0, dtype="float32").reshape(3, 2)
    rows = compiled(lambda y: rows_of(table, class_indices(y, 3)))
    found = rows(np.array([2, 3, -1, 0], "int32"))
    nothing = [np.nan, np.nan]
    np.testing.assert_array_equal(found, [[4, 5], nothing, nothing, [0, 1]])


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="64-bit labels")
def test_labels_that_the_backend_would_cut_are_refused():
    labels, rows = np.array([1, 2**32 + 1]), np.ones((2, 3), "float32")
    for call in (
        lambda: flat_labels(labels),
        lambda: flat_labels(labels.astype("float64")),
        lambda: gsp.layers.EmbeddingMemory(4)(rows, labels),
        lambda: gsp.layers.ClassEmbeddings(3, 2)(labels),
    ):
        with pytest.raises(ValueError, match="must fit into .*4294967297"):
            call()
