"""Which items belong to which class, as one index table."""

from typing import Any

import numpy as np

from keras_gsp.embeddings.labelled_embeddings import checked_labels
from keras_gsp.ops.tensor import Tensor


def class_table(labels: Tensor) -> tuple[Any, Any]:
    """Sorts items by class, keeping their order within a class.

    Args:
        labels: (items,) or (items, 1), numbers or strings.

    Returns:
        `order` (items,), int64, positions in `labels`, class after class, and
        `counts` (classes,), int64, how many of them each class has.

    Raises:
        TypeError: labels that are neither numbers nor strings.
        ValueError: no labels, another shape, or NaN.
    """
    labels = np.asarray(labels)
    if labels.ndim == 0 or len(labels) == 0:
        raise ValueError(
            "`labels` must hold the class of at least one item. "
            f"Received: shape {labels.shape}."
        )
    labels = checked_labels(labels, len(labels))
    _, codes, counts = np.unique(
        labels, return_inverse=True, return_counts=True
    )
    order = np.argsort(codes.reshape(-1), kind="stable")
    return order.astype("int64"), counts.astype("int64")
