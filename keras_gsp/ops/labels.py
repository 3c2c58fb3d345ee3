"""Flatten and compare class labels, or turn them into row numbers."""

import keras
from keras import ops

from keras_gsp._checks import concrete_value, require
from keras_gsp._tensor import Tensor


def flat_labels(labels: Tensor) -> Tensor:
    """Returns labels (batch,) or (batch, 1) as integers (batch,).

    `TypeError` for another type, and for floats where a step of JAX is traced:
    nothing could say there that they are not whole. `ValueError`, in a
    TensorFlow graph `InvalidArgumentError`: fractions and NaN; another shape.
    """
    labels = ops.convert_to_tensor(labels)
    dtype = keras.backend.standardize_dtype(labels.dtype)
    if keras.backend.is_float_dtype(dtype):  # Keras and datasets make them.
        labels = _whole(labels, dtype)
    elif not keras.backend.is_int_dtype(dtype) and dtype != "bool":
        raise TypeError(f"`labels` must be integers. Received: dtype {dtype}.")
    if dtype == "uint64":
        labels = ops.cast(labels, "int64")  # Keras compares as float32.
    if len(labels.shape) == 2 and labels.shape[-1] == 1:
        return labels[:, 0]
    if len(labels.shape) != 1:
        raise ValueError(
            "`labels` must have shape (batch,) or (batch, 1). "
            f"Received: shape {tuple(labels.shape)}."
        )
    return labels


def _whole(labels, dtype):
    """Returns floats that are whole numbers as integers."""
    is_jax = keras.backend.backend() == "jax"
    integers = ops.cast(labels, "int32" if is_jax else "int64")
    is_whole = ops.all(ops.cast(integers, dtype) == labels)
    if is_jax and concrete_value(is_whole) is None:
        raise TypeError(
            "A tensor of `labels` must be integers. "
            f"Received: dtype {dtype}; cast it, as floats may be NaN."
        )
    expectation = "`labels` must be whole numbers."
    return require(integers, is_whole, expectation, labels=labels)


def class_indices(labels: Tensor, num_classes: int) -> Tensor:
    """Returns labels as int32 row numbers (batch,) in [0, num_classes).

    A label that has no row raises a `ValueError` where its value is known, and
    an `InvalidArgumentError` in a TensorFlow graph. XLA cannot raise: there it
    becomes -1, for which `rows_of` and `nan_without_row` return NaN.
    """
    labels = flat_labels(labels)
    indices = ops.cast(labels, "int32")
    # Casting back shows whether the cast lost high bits.
    has_row = ops.cast(indices, labels.dtype) == labels
    has_row &= (indices >= 0) & (indices < num_classes)
    indices = require(
        indices,
        ops.all(has_row),
        f"`labels` must be whole numbers in [0, {num_classes}).",
        labels=labels,
    )
    return ops.where(has_row, indices, -1)


def rows_of(table: Tensor, indices: Tensor) -> Tensor:
    """Returns the rows (batch, size) of a table; NaN where the index is -1."""
    rows = ops.take(table, ops.maximum(indices, 0), axis=0)
    return nan_without_row(rows, indices[:, None])


def nan_without_row(values: Tensor, indices: Tensor) -> Tensor:
    """Returns the values, NaN where the index is -1."""
    return ops.where(indices >= 0, values, float("nan"))


def same_class(labels: Tensor, reference_labels: Tensor) -> Tensor:
    """Compares labels with reference labels: boolean (batch, references)."""
    dtypes = {
        keras.backend.standardize_dtype(side.dtype)
        for side in (labels, reference_labels)
    }
    if len(dtypes) > 1:
        # Keras's common dtype of int64 is int32 on PyTorch.
        labels = ops.cast(labels, "int64")
        reference_labels = ops.cast(reference_labels, "int64")
    return labels[:, None] == reference_labels[None, :]


def first_occurrences(labels: Tensor) -> Tensor:
    """Replaces each label by the position of its first occurrence, int32.

    Exact, where float32 cannot hold an eleven-digit product number.
    """
    same = ops.cast(same_class(labels, labels), "int32")
    return ops.cast(ops.argmax(same, axis=1), "int32")
