"""Class labels on their way to the backend: checked, and as small integers.

Left to Keras, JAX cuts 64-bit integers to 32 bits, floats above 2**24 meet,
and strings end a step in which the model has given its weights away.
"""

from typing import Any

import keras
import numpy as np

from keras_gsp._labeled_batches import check_pair, check_spec
from keras_gsp._labels import as_host_array, label_codes

_SMALL = np.iinfo("int32")
_EXACT = 2**24


def labels_for_backend(
    labels: Any,
    num_classes: int | None,
    ignored: int | None,
    is_batch: bool = False,
) -> Any:
    """Returns labels of one class per sample as the backend takes them.

    Integers of any size, whole floats and strings become codes in the order
    of the sorted labels; integers of 32 bits stay as they are, as do matrices
    (pairs, several classes) and fractions. Those of one batch cannot become
    codes: `TypeError` for strings, `ValueError` for what 32 bits do not hold.
    With `num_classes` labels are class numbers, and must be in [0,
    num_classes). `ignored` stays as it is.
    """
    if isinstance(labels, dict):
        return labels
    array = as_host_array(labels)
    if is_batch:
        _check_not_strings(array.dtype)
    if array.ndim > 1 and array.shape[1:] != (1,):
        return labels
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise ValueError(
            "Labels must not be NaN. Received: "
            f"{np.isnan(array).sum()} NaN of {len(array)}. Leave these samples "
            "out, or give them the `ignore_class` of the loss."
        )
    if num_classes is not None:
        return _class_numbers(array, num_classes, ignored)
    if is_batch and not _are_small(array):
        raise ValueError(
            "Labels of a batch must fit into 32 bits. Received: "
            f"{np.abs(array).max()}. Replace them by codes, for example of "
            "`numpy.unique(labels, return_inverse=True)`."
        )
    is_fraction = array.dtype.kind == "f" and (array != np.trunc(array)).any()
    is_small = array.dtype.kind in "iub" and _are_small(array)
    if is_batch or is_fraction or is_small:
        return array
    codes, values = label_codes(array)
    if ignored is not None:
        codes = np.where(values[codes] == ignored, ignored, codes)
    return codes.astype("int32")


def check_data_set(
    dataset: Any, num_classes: int | None, ignored: int | None
) -> None:
    """Raises for a data set that would fail inside a step.

    It must yield batches of images and labels. On JAX, which cannot raise in a
    step, and of a `PyDataset` the first batch is checked; of other data sets
    that their labels are no strings.
    """
    if hasattr(dataset, "shape") or isinstance(dataset, dict | list | tuple):
        raise TypeError(
            "Labels must be given beside arrays: `fit(images, labels)`. "
            "Received: no labels."
        )
    spec = getattr(dataset, "element_spec", None)
    if spec is not None:
        check_spec(spec, "x", may_have_weights=True)
        for one in keras.tree.flatten(spec[1]):
            _check_not_strings(getattr(one, "dtype", None))
    if isinstance(dataset, keras.utils.PyDataset):
        batch = dataset[0]
    elif spec is not None and keras.backend.backend() == "jax":
        batch = next(iter(dataset), None)
    else:
        return
    if batch is not None:
        check_pair(batch, "x", may_have_weights=True)
        labels_for_backend(batch[1], num_classes, ignored, is_batch=True)


def _are_small(labels):
    """Whether the backend keeps labels apart: int32, or exact in float32."""
    if labels.dtype.kind == "f":
        return not (np.abs(labels) > _EXACT).any()
    return not labels.size or (
        labels.min() >= _SMALL.min and labels.max() <= _SMALL.max
    )


def _class_numbers(labels, num_classes, ignored):
    right = np.zeros(labels.shape, bool)
    if labels.dtype.kind in "iuf":
        right = (labels >= 0) & (labels < num_classes)
        right &= labels == np.trunc(labels)
        if ignored is not None:
            right |= labels == ignored
    if not right.all():
        raise ValueError(
            "With proxies or class embeddings, labels must be whole numbers in "
            f"[0, num_classes={num_classes}). Received: "
            f"{labels[~right].reshape(-1)[0]!r}. Map other labels first, with "
            "`numpy.unique(labels, return_inverse=True)`."
        )
    return labels.astype("int32")


def _check_not_strings(dtype):
    name = str(getattr(dtype, "name", dtype))
    if name.startswith(("str", "bytes", "object", "<U", "|S")):
        raise TypeError(
            "Labels of a batch or data set must be numbers. Received: strings. "
            "Replace them by `numpy.unique(names, return_inverse=True)[1]`."
        )
