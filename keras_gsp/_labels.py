"""Class codes of labels of any type, and NumPy arrays of any library's."""

import os
from typing import Any

import numpy as np


def label_codes(
    labels: Any, name: str = "labels"
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers class labels from 0, in the order of the sorted labels.

    A backend may cut 64-bit labels or take no strings; it takes the codes.

    Args:
        labels: (items,) or (items, 1): integers of any width, whole floats,
            strings or UTF-8 bytes, in a list, a NumPy or pandas array or a
            tensor of any library.
        name: name of the labels in errors.

    Returns:
        (codes, values): int32 (items,), and the sorted labels of the codes,
        `values[codes] == labels`.

    Raises:
        TypeError: labels that are neither numbers nor strings, or mixed.
        ValueError: another shape; NaN; fractions; floats too large to tell
            neighboring whole numbers apart.
    """
    labels = as_host_array(labels, name)
    labels = checked_labels(labels, len(labels) if labels.ndim else None, name)
    if labels.dtype.kind == "f":
        wrong = labels[(labels != np.floor(labels)) | np.isinf(labels)]
        if wrong.size:
            raise ValueError(
                f"`{name}` must be whole numbers. "
                f"Received: {wrong[:3].tolist()}."
            )
        # Beyond, neighboring whole numbers are one float: ids have been lost.
        bound = 2.0 ** (np.finfo(labels.dtype).nmant + 1)
        if (np.abs(labels) >= bound).any():
            raise ValueError(
                f"`{name}` as {labels.dtype} must be below {bound:.0f}, where "
                "whole numbers are told apart; pass integers or strings. "
                f"Received: {np.abs(labels).max():.0f}."
            )
        labels = labels.astype("int64")
    values, codes = np.unique(labels, return_inverse=True)
    return codes.astype("int32"), values


def host_array(values: Any) -> np.ndarray:
    """Returns what NumPy makes of values, also of PyTorch's on a GPU."""
    if hasattr(values, "detach"):  # Perhaps with a gradient.
        return values.detach().cpu().numpy()
    return np.asarray(values)


def as_host_array(values: Any, name: str = "values") -> np.ndarray:
    """Returns the array of any library as a NumPy array, without loss.

    Lists, tuples, pandas columns, and tensors of TensorFlow, JAX or PyTorch.
    Strings, bytes and paths become NumPy strings; mixed or missing ones and
    objects are a `TypeError`.
    """
    array = host_array(values)
    is_listed = isinstance(values, list | tuple)
    if is_listed and array.dtype.kind in "USf":
        # NumPy writes 1 as "1" beside strings; 2**63 beside -1 as a float.
        objects = np.asarray(values, object)
        if array.dtype.kind != "f" or any(map(_is_int, objects.flat)):
            array = objects
    if array.dtype.kind in "OT":  # T: NumPy's strings of variable width.
        array = _typed(array.astype(object), name)
    if array.dtype.kind == "S":
        # TensorFlow's strings are bytes; bytes that are no UTF-8 stay distinct.
        array = np.char.decode(array, "utf-8", "surrogateescape")
    return array


def checked_labels(
    labels: Any, length: int | None, name: str = "labels"
) -> np.ndarray:
    """Returns labels, (items,) or (items, 1), as a flat array.

    Unsigned integers become int64 where that holds them. `TypeError` for
    neither numbers nor strings, `ValueError` for another length or NaN.
    """
    labels = as_host_array(labels, name)
    if label_type(labels) is None:
        raise TypeError(
            f"`{name}` must be numbers or strings. "
            f"Received: dtype {labels.dtype}."
        )
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape != (length,):
        raise ValueError(
            f"`{name}` must have one entry for each item, ({length},) or "
            f"({length}, 1). Received: shape {tuple(labels.shape)}."
        )
    if labels.dtype.kind == "u" and labels.max(initial=0) < 2**63:
        labels = labels.astype("int64")
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise ValueError(
            f"`{name}` must not be NaN. Received: {np.isnan(labels).sum()} NaN "
            f"of {length}."
        )
    return labels


def joined_labels(*parts: np.ndarray) -> np.ndarray:
    """Concatenates checked labels without loss.

    NumPy promotes int64 beside uint64 to float64, where large ids collide.
    """
    if {"int64", "uint64"} <= {part.dtype.name for part in parts}:
        return np.concatenate([part.astype(object) for part in parts])
    return np.concatenate(parts)


def label_type(labels: np.ndarray) -> type | None:
    """Returns int, float or str; None for anything else."""
    types = {"b": int, "i": int, "u": int, "f": float, "U": str}
    if labels.dtype == object:  # Integers that no integer type holds.
        return int if labels.size and all(map(_is_int, labels.flat)) else None
    return types.get(labels.dtype.kind)


def _is_int(value):
    return isinstance(value, int | np.integer)


def _typed(objects, name):
    """An array of objects of one type, as that type."""
    types = {type(value) for value in objects.flat}

    def are(kind):
        return types and all(issubclass(one, kind) for one in types)

    if are(str) or are(bytes):
        return objects.astype("U" if are(str) else "S")
    if are(os.PathLike):
        paths = [os.fspath(path) for path in objects.flat]
        return np.array(paths).reshape(objects.shape)
    if are(int | np.integer):
        for dtype in ("int64", "uint64"):
            bounds = np.iinfo(dtype)
            if bounds.min <= objects.min() and objects.max() <= bounds.max:
                return objects.astype(dtype)
        return objects
    if are(int | float | np.integer | np.floating):
        return objects.astype("float64")
    names = sorted(one.__name__ for one in types)
    raise TypeError(
        f"`{name}` must be numbers or strings, all of one type and none "
        f"missing. Received: objects of types {names}."
    )
