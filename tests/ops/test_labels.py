"""Labels are checked, flattened and compared without losing digits."""

import numpy as np

from keras_gsp.ops.labels import (
    class_indices,
    first_occurrences,
    flat_labels,
    rows_of,
    same_class,
)
from tests.compiled import compiled, not_on_jax, under_xla


def test_labels_are_compared_and_numbered():
    same = same_class(*map(flat_labels, ([1, 2], [[2], [1], [2]])))
    np.testing.assert_array_equal(same, [[0, 1, 0], [1, 0, 1]])
    found = first_occurrences(flat_labels([7, 5, 7, 9, 5]))
    np.testing.assert_array_equal(found, [0, 1, 0, 3, 1])


@not_on_jax  # JAX integers have 32 bits.
def test_eleven_digit_labels_do_not_collide_with_short_ones():
    labels = np.array([11126532855, 11126532856], "int64")
    wrapped = np.array([11126532855 % 2**32 - 2**32], "int32")
    same = same_class(*map(flat_labels, (wrapped, labels)))
    assert not np.asarray(same).any()


@under_xla
def test_compiled_labels_without_a_row_give_nan_rows():
    table = np.arange(6.0, dtype="float32").reshape(3, 2)
    rows = compiled(lambda y: rows_of(table, class_indices(y, 3)))
    found = rows(np.array([2, 3, -1, 0], "int32"))
    nothing = [np.nan, np.nan]
    np.testing.assert_array_equal(found, [[4, 5], nothing, nothing, [0, 1]])
