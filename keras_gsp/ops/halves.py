"""A batch in two halves that have no class in common."""

from typing import Any

import keras
from keras import ops

from keras_gsp.ops.labels import first_occurrences, flat_labels
from keras_gsp.ops.preconditions import require
from keras_gsp.ops.tensor import Tensor


def class_disjoint_halves(labels: Tensor, seed: Any) -> Tensor:
    """Splits a batch at random into two halves without a common class.

    The classes are put into random order, and the line is drawn in the
    middle of the batch: a class belongs to the first half when the middle of
    its samples lies in the first half of the batch. Sizes therefore differ
    by at most the size of the class on the line. With two classes or more no
    half is empty, and an even number of classes of one size gives halves of
    one size. All this holds whatever the order of the samples.

    The reference code of the zero-shot paper takes even and odd positions,
    or the first and second part of the batch; both are class-disjoint only
    with its own sampler.

    Args:
        labels: (batch,) or (batch, 1), integers or floats.
        seed: int (one draw, the same in every call; under XLA TensorFlow
            draws other numbers than without), `None` (a new draw from the
            global generator of Keras) or `keras.random.SeedGenerator` (a new
            draw from that generator). In a function compiled by JAX only a
            generator that belongs to a layer or model gives new draws.

    Returns:
        (batch,), boolean: True in the first half.

    Raises:
        TypeError: strings as labels.
        ValueError: fewer than two classes. In a TensorFlow graph that is a
            `tf.errors.InvalidArgumentError`. Compiled by XLA it cannot be
            raised: all samples are then in the first half.

    Example:
    ```python
    labels = np.array([7, 7, 1, 3, 3, 1, 5, 5])
    first_half = gsp.ops.class_disjoint_halves(labels, seed=0)
    # True for the four samples of two classes, False for the other four
    ```
    """
    labels = flat_labels(labels)
    first = first_occurrences(labels)
    first = require(
        first,
        ops.any(first != 0),
        "`labels` must hold at least two classes to be split into two "
        "halves without a common class.",
        labels=labels,
    )
    draws = keras.random.uniform((ops.shape(first)[0],), seed=seed)
    priority = ops.take(draws, first)  # One number a class.
    is_tie = priority[None, :] == priority[:, None]
    is_before = (priority[None, :] < priority[:, None]) | (
        is_tie & (first[None, :] < first[:, None])
    )
    num_before = ops.sum(ops.cast(is_before, "int32"), axis=1)
    is_same = first[None, :] == first[:, None]
    num_same = ops.sum(ops.cast(is_same, "int32"), axis=1)
    # num_before + num_same / 2 <= batch / 2, in integers.
    return 2 * num_before + num_same <= ops.shape(first)[0]


def given_or_drawn_halves(
    labels: Tensor, first_half: Tensor | None, seed: Any
) -> Tensor:
    """Returns the halves given, checked, or draws them when there are none.

    Args:
        labels: (batch,) or (batch, 1).
        first_half: (batch,), boolean, or `None`. That its classes are
            disjoint is left to the caller.
        seed: what `class_disjoint_halves` takes.

    Returns:
        (batch,), boolean.

    Raises:
        TypeError: `first_half` is not boolean.
        ValueError: its shape is not (batch,); labels that cannot be split.
    """
    if first_half is None:
        return class_disjoint_halves(labels, seed)
    first_half = ops.convert_to_tensor(first_half)
    if keras.backend.standardize_dtype(first_half.dtype) != "bool":
        raise TypeError(
            "`first_half` must be boolean, True for the samples of the first "
            f"half. Received: dtype {first_half.dtype}."
        )
    batch = flat_labels(labels).shape[0]
    if len(first_half.shape) != 1 or (
        None not in (batch, first_half.shape[0])
        and first_half.shape[0] != batch
    ):
        raise ValueError(
            "`first_half` must have shape (batch,), one entry a label. "
            f"Received: shape {tuple(first_half.shape)} for {batch} labels."
        )
    return first_half
