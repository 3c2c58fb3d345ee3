"""Class labels of a batch: checked, flattened, compared."""

import keras
import numpy as np
from keras import ops


def flat_labels(labels):
    """Returns class labels as a rank-1 tensor, refusing what cannot be one.

    Args:
        labels: (batch,) or (batch, 1), integers or floats.

    Returns:
        (batch,), in the dtype given.

    Raises:
        TypeError: strings or objects; they have no exact number.
        ValueError: any other rank.
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
    labels = ops.convert_to_tensor(labels)
    if len(labels.shape) == 2 and labels.shape[-1] == 1:
        return labels[:, 0]
    if len(labels.shape) != 1:
        raise ValueError(
            "`labels` must have shape (batch,) or (batch, 1). "
            f"Received: shape {tuple(labels.shape)}."
        )
    return labels


def same_class(labels, reference_labels):
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


def first_occurrences(labels):
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


def check_same_length(labels, embeddings, names=("labels", "embeddings")):
    """Raises `ValueError` when the two static lengths are known and differ."""
    lengths = labels.shape[0], embeddings.shape[0]
    if None not in lengths and lengths[0] != lengths[1]:
        raise ValueError(
            f"`{names[0]}` and `{names[1]}` must have the same length. "
            f"Received: {lengths[0]} and {lengths[1]}."
        )
