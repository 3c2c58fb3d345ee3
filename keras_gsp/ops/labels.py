"""Check, flatten and compare class labels, or turn them into row numbers."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_gsp._checks import known_to_differ, require
from keras_gsp._tensor import Tensor


def flat_labels(labels: Tensor) -> Tensor:
    """Returns labels (batch,) or (batch, 1) as (batch,), in their dtype.

    Raises `TypeError` for strings, `ValueError` for any other shape.
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


def numeric_labels(labels: Tensor) -> Tensor:
    """Returns labels as a tensor that holds them exactly.

    Raises `TypeError` for strings and objects, `ValueError` for host labels
    that the backend would cut.
    """
    is_host = _is_host(labels)
    if is_host:
        labels = np.asarray(labels)
    name = str(getattr(labels.dtype, "name", labels.dtype))
    if name.startswith(("str", "bytes", "object")):
        raise TypeError(
            "`labels` must be numbers, one per class. Received: dtype "
            f"{name}. Map class names to integers first, for example with "
            "`numpy.unique(names, return_inverse=True)` or "
            "`keras.layers.StringLookup`."
        )
    if not is_host:
        # Keras compares unsigned labels of 64 bits as float32.
        is_unsigned = keras.backend.standardize_dtype(labels.dtype) == "uint64"
        return ops.cast(labels, "int64") if is_unsigned else labels
    held = _held(labels)
    is_float = labels.dtype.kind == "f"
    may_be_rounded = is_float and not _is_flat(labels)  # Weights of pairs.
    if not may_be_rounded and not np.array_equal(held, labels, is_float):
        raise ValueError(
            f"`labels` of dtype {name} must fit into {held.dtype} here. "
            f"Received: {labels[held != labels][:3].tolist()}. Number the "
            "classes first, for example with "
            "`numpy.unique(labels, return_inverse=True)`."
        )
    return ops.convert_to_tensor(held)


def host_codes(*labels: Any) -> tuple[Any, ...]:
    """Numbers host labels alike where the backend cannot hold them.

    Returns the labels unchanged if it holds all of them, or if one is a tensor
    or no list of class labels. `None` stays `None`.
    """
    given = [one for one in labels if one is not None]
    if not all(map(_is_host, given)):
        return labels
    arrays = [np.asarray(one) for one in given]
    if not all(one.dtype.kind in "iuf" and _is_flat(one) for one in arrays):
        return labels
    if all(np.array_equal(_held(array), array) for array in arrays):
        return labels
    if any((array != array).any() for array in arrays):  # NaN.
        return labels
    # Python's numbers compare exactly, int64 with uint64 and with floats.
    together = np.concatenate([one.astype(object).ravel() for one in arrays])
    codes = np.unique(together, return_inverse=True)[1].astype("int32")
    ends = np.cumsum([array.size for array in arrays])[:-1]
    parts = iter(np.split(codes, ends))
    return tuple(None if one is None else next(parts) for one in labels)


def _is_host(labels):
    is_symbolic = isinstance(labels, keras.KerasTensor | keras.Variable)
    return not (is_symbolic or ops.is_tensor(labels))


def _is_flat(labels):
    return labels.size == max((1, *labels.shape[:1]))


def _held(labels):
    """Host labels in the dtype that the backend has for theirs."""
    dtype = "int64" if labels.dtype == "uint64" else labels.dtype
    backend = ops.convert_to_tensor(np.zeros((), dtype)).dtype
    return labels.astype(keras.backend.standardize_dtype(backend))


def class_indices(labels: Tensor, num_classes: int) -> Tensor:
    """Returns labels as int32 row numbers (batch,) in [0, num_classes).

    A label that has no row, or is not whole, raises a `ValueError` where its
    value is known, and an `InvalidArgumentError` in a TensorFlow graph. XLA
    cannot raise: there it becomes -1, for which `rows_of` and
    `nan_without_row` return NaN.
    """
    labels = flat_labels(labels)
    indices = ops.cast(labels, "int32")
    # Casting back shows what the cast lost: a fraction, or high bits.
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


def rows_of(table: Tensor, indices: Tensor) -> Tensor:
    """Returns the rows (batch, size) of a table; NaN where the index is -1."""
    rows = ops.take(table, ops.maximum(indices, 0), axis=0)
    return nan_without_row(rows, indices[:, None])


def nan_without_row(values: Tensor, indices: Tensor) -> Tensor:
    """Returns the values, NaN where the index is -1."""
    return ops.where(indices >= 0, values, float("nan"))


def same_class(labels: Tensor, reference_labels: Tensor) -> Tensor:
    """Compares labels with reference labels: boolean (batch, references)."""
    labels = flat_labels(labels)
    reference_labels = flat_labels(reference_labels)
    dtypes = [
        keras.backend.standardize_dtype(one.dtype)
        for one in (labels, reference_labels)
    ]
    if dtypes[0] != dtypes[1]:
        # Keras's common dtype of int64 is int32 on PyTorch.
        known = (wide for wide in ("float64", "int64") if wide in dtypes)
        dtype = next(known, None) or keras.backend.result_type(*dtypes)
        if dtype == "int64" and "float" in "".join(dtypes):
            dtype = "float32"
        labels = ops.cast(labels, dtype)
        reference_labels = ops.cast(reference_labels, dtype)
    return labels[:, None] == reference_labels[None, :]


def first_occurrences(labels: Tensor) -> Tensor:
    """Replaces each label by the position of its first occurrence, int32.

    Exact, where float32 cannot hold an eleven-digit product number.
    """
    labels = flat_labels(labels)
    same = ops.cast(same_class(labels, labels), "int32")
    return ops.cast(ops.argmax(same, axis=1), "int32")


def check_same_length(
    labels: Tensor,
    embeddings: Tensor,
    names: tuple[str, str] = ("labels", "embeddings"),
) -> None:
    """Raises `ValueError` when both static lengths are known and differ."""
    if known_to_differ(labels.shape[:1], embeddings.shape[:1]):
        raise ValueError(
            f"`{names[0]}` and `{names[1]}` must have the same length. "
            f"Received: {labels.shape[0]} and {embeddings.shape[0]}."
        )
