"""Labels at the door: integers or strings of any library become int32 numbers.

Public calls pass labels through `checked_labels`, `label_codes`,
`label_numbers` or `batch_labels`, once, on the host. What comes after compares
integers and checks no more.
"""

import os
from typing import Any
from unicodedata import normalize

import keras
import numpy as np

_INT32 = np.iinfo("int32")


def checked_labels(
    labels: Any, length: int | None = None, name: str = "labels"
) -> np.ndarray:
    """Returns labels, (items,) or (items, 1), as a flat int64 or string array.

    Integers, whole floats (as of a pandas column), strings, UTF-8 bytes and
    paths of any library; `name` is theirs in errors. `TypeError`: neither
    numbers nor strings, or mixed ones. `ValueError`: another shape or length;
    NaN; fractions; what int64, or a float, cannot hold exactly.
    """
    labels = checked_values(labels, length, name)
    if labels.dtype.kind == "f":
        # Beyond, neighboring whole numbers are one float: ids have been lost.
        bound = 2.0 ** (np.finfo(labels.dtype).nmant + 1)
        is_whole = (labels == np.floor(labels)) & (np.abs(labels) < bound)
        if not is_whole.all():
            raise ValueError(
                f"`{name}` as {labels.dtype} must be whole numbers below "
                f"{bound:.0f}; pass larger ones as integers or strings. "
                f"Received: {labels[~is_whole][:3].tolist()}."
            )
    if labels.dtype.kind in "uO":
        raise ValueError(
            f"`{name}` must fit into int64; pass larger ones as strings. "
            f"Received: {labels.max()}."
        )
    return labels if labels.dtype.kind == "U" else labels.astype("int64")


def checked_values(
    values: Any, length: int | None, name: str = "values"
) -> np.ndarray:
    """Returns numbers or strings, (items,) or (items, 1), as a flat array.

    `TypeError` for anything else, `ValueError` for another length or NaN.
    """
    values = as_host_array(values, name)
    # Objects are integers that no integer type holds.
    is_plain = values.dtype.kind in "biufU"
    is_plain |= values.dtype == object and all(map(_is_int, values.flat))
    if not is_plain:
        raise TypeError(
            f"`{name}` must be numbers or strings. "
            f"Received: dtype {values.dtype}."
        )
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or length not in (None, len(values)):
        raise ValueError(
            f"`{name}` must have one entry for each item, ({length},) or "
            f"({length}, 1). Received: shape {tuple(values.shape)}."
        )
    if values.dtype.kind == "u" and values.max(initial=0) < 2**63:
        values = values.astype("int64")
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise ValueError(
            f"`{name}` must not be NaN. Received: {np.isnan(values).sum()} NaN "
            f"of {len(values)}."
        )
    is_text = values.dtype.kind == "U" and values.size
    if is_text and np.ascontiguousarray(values).view("uint32").max() > 127:
        values = np.array([composed(value) for value in values.tolist()])
    return values


def label_codes(labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """Numbers class labels from 0, in the order of the sorted labels.

    Returns (codes, values), int32 (items,), and `values[codes] == labels`.
    """
    values, codes = np.unique(checked_labels(labels), return_inverse=True)
    return codes.astype("int32"), values


def label_numbers(
    labels: Any, ignored: int | None = None, length: int | None = None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns labels as int32, and the labels of codes or `None`.

    Integers of 32 bits stay as they are; of others and of strings the codes
    are taken. `ignored` stays as it is, and is no code.
    """
    labels = checked_labels(labels, length)
    if labels.dtype.kind == "i" and _are_small(labels):
        return labels.astype("int32"), None
    codes, values = label_codes(labels)
    if ignored is not None:
        codes += max(0, ignored + 1)
        if labels.dtype.kind == "i":
            codes[labels == ignored] = ignored
    return codes, values


def batch_labels(labels: Any) -> Any:
    """Returns the labels of one batch as int32; tensors as they are.

    Codes would differ between batches: `TypeError` for strings, `ValueError`
    for integers beyond 32 bits.
    """
    if not is_host(labels):
        return labels
    numbers = checked_labels(labels)
    advice = "Replace them by `numpy.unique(labels, return_inverse=True)[1]`."
    if numbers.dtype.kind == "U":
        raise TypeError(
            f"Labels of a batch must be numbers. Received: strings. {advice}"
        )
    if not _are_small(numbers):
        raise ValueError(
            "Labels of a batch must fit into 32 bits. Received: "
            f"{np.abs(numbers).max()}. {advice}"
        )
    return numbers.astype("int32")


def is_host(labels: Any) -> bool:
    """Whether labels are no tensor of the backend."""
    is_symbolic = isinstance(labels, keras.KerasTensor | keras.Variable)
    return not (is_symbolic or keras.ops.is_tensor(labels))


def composed(text: str) -> str:
    """Returns text in Unicode's composed form (NFC)."""
    return str(text) if text.isascii() else normalize("NFC", text)


def host_array(values: Any) -> np.ndarray:
    """Returns what NumPy makes of values, also of PyTorch's on a GPU."""
    if hasattr(values, "detach"):  # Perhaps with a gradient.
        return values.detach().cpu().numpy()
    return np.asarray(values)


def as_host_array(values: Any, name: str = "values") -> np.ndarray:
    """Returns the array of any library as a NumPy array, without loss.

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


def _are_small(labels):
    """Whether 32 bits hold all of these integers."""
    low, high = labels.min(initial=0), labels.max(initial=0)
    return _INT32.min <= low and high <= _INT32.max


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
