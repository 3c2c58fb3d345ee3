"""Class labels of a batch: checked, flattened, compared, as row numbers."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_gsp.ops.preconditions import require


def flat_labels(labels: Any) -> Any:
    """Returns class labels as a rank-1 tensor, refusing what cannot be one.

    Args:
        labels: (batch,) or (batch, 1), integers or floats.

    Returns:
        (batch,), in the dtype given.

    Raises:
        TypeError: strings or objects; they have no exact number.
        ValueError: any other rank.
    """
    labels = numeric_labels(labels)
    if len(labels.shape) == 2 and labels.shape[-1] == 1:
        return labels[:, 0]
    if len(labels.shape) != 1:
        raise ValueError(
            "`labels` must have shape (batch,) or (batch, 1). "
            f"Received: shape {tuple(labels.shape)}."
        )
    return labels


def numeric_labels(labels: Any) -> Any:
    """Returns labels of any shape as a tensor, refusing names.

    Raises:
        TypeError: strings or objects; they have no exact number.
    """
    dtype = getattr(labels, "dtype", None) or np.asarray(labels).dtype
    name = str(getattr(dtype, "name", dtype))
    if name.startswith(("str", "bytes", "object")):
        raise TypeError(
            "`labels` must be numbers, one per class. Received: dtype "
            f"{name}. Map class names to integers first, for example with "
            "`numpy.unique(names, return_inverse=True)` or "
            "`keras.layers.StringLookup`."
        )
    return ops.convert_to_tensor(labels)


def class_indices(labels: Any, num_classes: int) -> Any:
    """Returns labels as int32 row numbers of a table with a row a class.

    The one rule for a label that has no row, or is not whole. Where its
    value is known it is a `ValueError`; in a TensorFlow graph an
    `InvalidArgumentError` when the graph runs; compiled by XLA
    (`jit_compile=True`, JAX) nothing can be raised, and its number is -1:
    `rows_of` and `nan_without_row` then make its result NaN, never that of
    another class.

    Args:
        labels: (batch,) or (batch, 1), integers or whole floats in
            [0, num_classes).
        num_classes: int, rows of the table.

    Returns:
        (batch,), int32, in [0, num_classes), or -1.

    Raises:
        TypeError: strings.
        ValueError: a label outside the table or not whole, see above.
    """
    labels = flat_labels(labels)
    indices = ops.cast(labels, "int32")
    # The way back shows what the cast cut off: a fraction, or high bits.
    is_exact = ops.cast(indices, labels.dtype) == labels
    is_inside = (indices >= 0) & (indices < num_classes)
    has_row = is_exact & is_inside
    indices = require(
        indices,
        ops.all(has_row),
        f"`labels` must be whole numbers in [0, {num_classes}).",
        labels=labels,
    )
    return ops.where(has_row, indices, -1)


def rows_of(table: Any, indices: Any) -> Any:
    """Returns one row of a table for each number of `class_indices`.

    Args:
        table: (num_classes, size), floats.
        indices: (batch,), int32, -1 for no row.

    Returns:
        (batch, size); NaN where there is no row.
    """
    rows = ops.take(table, ops.maximum(indices, 0), axis=0)
    return nan_without_row(rows, indices[:, None])


def nan_without_row(values: Any, indices: Any) -> Any:
    """Returns the values, NaN where the number of `class_indices` is -1."""
    return ops.where(indices >= 0, values, float("nan"))


def same_class(labels: Any, reference_labels: Any) -> Any:
    """Which label equals which reference label.

    Args:
        labels: (batch,) or (batch, 1).
        reference_labels: (references,) or (references, 1).

    Returns:
        (batch, references), boolean.
    """
    labels = flat_labels(labels)
    reference_labels = flat_labels(reference_labels)
    # The wider of both: 64-bit ids do not wrap beside 32-bit ones.
    dtype = keras.backend.result_type(labels.dtype, reference_labels.dtype)
    labels = ops.cast(labels, dtype)[:, None]
    return labels == ops.cast(reference_labels, dtype)[None, :]


def first_occurrences(labels: Any) -> Any:
    """Replaces each label by the position where it first stands.

    Small exact integers in place of labels of any size: an eleven-digit
    product number does not survive float32, its position does.

    Args:
        labels: (batch,) or (batch, 1), integers or floats.

    Returns:
        (batch,), int32, in [0, batch).
    """
    labels = flat_labels(labels)
    same = ops.cast(same_class(labels, labels), "int32")
    return ops.cast(ops.argmax(same, axis=1), "int32")


def check_same_length(
    labels: Any,
    embeddings: Any,
    names: tuple[str, str] = ("labels", "embeddings"),
) -> None:
    """Raises `ValueError` when the two static lengths are known and differ."""
    lengths = labels.shape[0], embeddings.shape[0]
    if None not in lengths and lengths[0] != lengths[1]:
        raise ValueError(
            f"`{names[0]}` and `{names[1]}` must have the same length. "
            f"Received: {lengths[0]} and {lengths[1]}."
        )
