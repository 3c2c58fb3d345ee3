"""Labels that index a table with one row a class."""

from keras import ops

from keras_gsp.ops.labels import flat_labels
from keras_gsp.ops.preconditions import require


def class_indices(labels, num_classes: int):
    """Returns labels as int32 row numbers, refusing those without a row.

    Args:
        labels: (batch,) or (batch, 1), integers or whole floats in
            [0, num_classes).
        num_classes: int, rows of the table.

    Returns:
        (batch,), int32.

    Raises:
        TypeError: strings.
        ValueError: a label outside the table or not whole. In a TensorFlow
            graph `tf.errors.InvalidArgumentError`; compiled by XLA such a
            label is not noticed.
    """
    labels = flat_labels(labels)
    indices = ops.cast(labels, "int32")
    # The way back shows what the cast cut off: a fraction, or high bits.
    is_exact = ops.cast(indices, labels.dtype) == labels
    is_inside = (indices >= 0) & (indices < num_classes)
    require(
        ops.all(is_exact & is_inside),
        f"`labels` must be whole numbers in [0, {num_classes}).",
        labels=labels,
    )
    return indices
