"""Split a batch into two halves that have no class in common."""

from typing import TypeAlias

import keras
from keras import ops

from keras_gsp._checks import check_same_size, check_shape, require
from keras_gsp._labels import batch_labels
from keras_gsp._tensor import Tensor
from keras_gsp.ops.labels import first_occurrences, flat_labels

Seed: TypeAlias = int | keras.random.SeedGenerator | None


def class_disjoint_halves(labels: Tensor, seed: Seed) -> Tensor:
    """Splits a batch at random into two halves without a common class.

    Sorts the samples by class, the classes in random order. A class belongs
    to the first half when the middle of its samples lies there. The halves
    differ in size by at most the class at the cut, and neither is empty.

    The zero-shot paper's code takes even and odd positions, or the first and
    second part of the batch; both are class-disjoint only with its sampler.

    Args:
        labels: (batch,) or (batch, 1), integers of 32 bits.
        seed: int (the same draw in every call; TensorFlow draws others under
            XLA), `None` (a new draw from Keras's global generator) or
            `keras.random.SeedGenerator`. In a function compiled by JAX only a
            generator that belongs to a layer or model gives new draws.

    Returns:
        (batch,), boolean: True in the first half.

    Raises:
        TypeError: labels that are no numbers.
        ValueError: fewer than two classes (`tf.errors.InvalidArgumentError`
            in a TensorFlow graph). XLA cannot raise it: there all samples are
            in the first half.

    Example:
        ```python
        labels = np.array([7, 7, 1, 3, 3, 1, 5, 5])
        first_half = gsp.ops.class_disjoint_halves(labels, seed=0)
        ```
    """
    labels = flat_labels(batch_labels(labels))
    first = first_occurrences(labels)
    first = require(
        first,
        ops.any(first != 0),
        "`labels` must hold at least two classes to be split into two "
        "halves without a common class.",
        labels=labels,
    )
    draws = keras.random.uniform((ops.shape(first)[0],), seed=seed)
    priority = ops.take(draws, first)  # One number per class.
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
    labels: Tensor, first_half: Tensor | None, seed: Seed
) -> Tensor:
    """Returns the given halves (batch,), checked, or draws them for `None`."""
    if first_half is None:
        return class_disjoint_halves(labels, seed)
    first_half = ops.convert_to_tensor(first_half)
    if keras.backend.standardize_dtype(first_half.dtype) != "bool":
        raise TypeError(
            "`first_half` must be boolean, True for the samples of the first "
            f"half. Received: dtype {first_half.dtype}."
        )
    check_shape("(batch,)", first_half=first_half)
    check_same_size(labels, first_half, ("labels", "first_half"))
    return first_half
