"""Weights of the positive and negative pairs of a batch, and sums over them."""

from collections.abc import Callable
from typing import NamedTuple

import keras
from keras import ops

from keras_gsp._checks import known_to_differ
from keras_gsp._tensor import Tensor
from keras_gsp.ops.labels import flat_labels, numeric_labels, same_class
from keras_gsp.ops.precision import at_least_float32, full_matmul

LABEL_KINDS = ("class", "multi_hot", "pairs")

# Instead of minus infinity: its exponential is 0, its gradient is not NaN.
_NEVER = -1e30


class PairWeights(NamedTuple):
    """Weights of each pair as a positive and as a negative pair.

    A pair with both weights 0 is left out of every sum and every count.

    Attributes:
        positive: (batch, references), floats, at least 0.
        negative: (batch, references), floats, at least 0.
    """

    positive: Tensor
    negative: Tensor

    def without(self, is_left_out: Tensor) -> "PairWeights":
        """Returns the weights, 0 where `is_left_out` (batch, references)."""
        kept = ops.cast(ops.logical_not(is_left_out), self.positive.dtype)
        return PairWeights(self.positive * kept, self.negative * kept)

    def cast(self, dtype: str) -> "PairWeights":
        """Returns the weights in another dtype."""
        return PairWeights(
            ops.cast(self.positive, dtype), ops.cast(self.negative, dtype)
        )


def checked_pair_labels(labels: Tensor, kind: str) -> Tensor:
    """Returns class labels (batch,), or a label matrix as given.

    A boolean matrix (batch, references) of kind `"class"` marks the pairs.
    """
    labels = numeric_labels(labels)
    shape = tuple(labels.shape)
    if kind == "class" and not _marks_pairs(labels):
        if len(shape) == 2 and shape[-1] != 1:
            raise ValueError(
                "`labels` must have shape (batch,) or (batch, 1), or be a "
                "boolean matrix that marks the positive pairs. Received: "
                f"shape {shape}. Numbers with one row per sample need "
                '`label_kind="pairs"` or `label_kind="multi_hot"`.'
            )
        return flat_labels(labels)
    if len(shape) != 2:
        expected = "num_classes" if kind == "multi_hot" else "references"
        raise ValueError(
            f'`labels` of `label_kind="{kind}"` must have shape (batch, '
            f"{expected}). Received: shape {shape}."
        )
    return labels


def checked_reference_labels(labels: Tensor, kind: str) -> Tensor:
    """Returns the labels of references; class numbers suit every `kind`."""
    labels = numeric_labels(labels)
    if len(labels.shape) == 1:
        return labels
    return checked_pair_labels(labels, kind)


def pair_weights(
    labels: Tensor,
    reference_labels: Tensor,
    *,
    kind: str = "class",
    ignore_class: int | None = None,
) -> PairWeights:
    """Computes the float32 weights (batch, references) of all pairs.

    - `"class"`: equal labels make a positive pair, unequal ones a negative
      pair; a sample labeled `ignore_class` has no pairs.
    - `"multi_hot"`: samples that share a class make a positive pair; a
      reference may have its class number instead of a row.
    - `"pairs"`: `labels` holds the pairs. True or a number w above 0 is a
      positive pair with weight w, False or 0 a negative pair, a number below
      0 (or NaN) no pair.
    """
    if kind == "pairs" or (kind == "class" and _marks_pairs(labels)):
        weights = ops.cast(labels, "float32")
        return PairWeights(
            ops.where(weights > 0.0, weights, 0.0),
            ops.cast(weights == 0.0, "float32"),
        )
    if reference_labels is None:
        raise ValueError(
            "`reference_labels` must be given unless `labels` are a matrix "
            "that marks the positive pairs. Received: None."
        )
    if kind == "multi_hot":
        return _as_weights(_share_a_class(labels, reference_labels))
    weights = _as_weights(same_class(labels, reference_labels))
    if ignore_class is None:
        return weights
    one, other = (
        ops.equal(side, ops.cast(ignore_class, side.dtype))
        for side in (labels, reference_labels)
    )
    return weights.without(one[:, None] | other[None, :])


def anchor_shares(row_sums: Tensor, count: Tensor) -> Tensor:
    """Splits `sum(row_sums) / count` into one term per anchor, (batch,).

    The mean of the terms is that quotient, and 0 when `count` is 0. Terms,
    not a scalar, because Keras scales terms by sample weights and replicas.
    """
    anchors = ops.cast(ops.shape(row_sums)[0], row_sums.dtype)
    count = ops.cast(count, row_sums.dtype)
    return row_sums * (anchors / ops.where(count > 0.0, count, 1.0))


def shares_of_mean_anchor(
    row_values: Tensor, positive: Tensor, negative: Tensor
) -> Tensor:
    """Returns terms (batch,) whose mean averages over anchors with a pair."""
    has_pair = ops.any(positive + negative > 0.0, axis=1)
    return shares_of_mean_over(row_values, has_pair)


def shares_of_mean_over(row_values: Tensor, is_counted: Tensor) -> Tensor:
    """Returns terms (batch,) whose mean averages over the counted anchors."""
    kept = ops.where(is_counted, row_values, 0.0)
    return anchor_shares(kept, ops.sum(ops.cast(is_counted, "int32")))


def log_one_plus_sum_exp(
    exponents: Tensor, kept: Tensor, *, axis: int | tuple[int, ...] = -1
) -> Tensor:
    """Returns `log(1 + sum(exp(exponents)))` over the kept entries.

    Computed as `softplus(logsumexp)`: nothing overflows, an empty row gives 0.
    """
    exponents = at_least_float32(exponents)
    never = ops.cast(_NEVER, exponents.dtype)
    exponents = ops.where(kept, exponents, never)
    return ops.softplus(ops.logsumexp(exponents, axis=axis))


def weighted_logsumexp(
    exponents: Tensor, weights: Tensor, *, axis: int = -1
) -> Tensor:
    """Returns `log(sum(weights * exp(exponents)))`.

    An entry of weight 0 is left out; about -1e30 where all weights are 0.
    """
    is_kept = weights > 0.0
    logs = ops.log(ops.where(is_kept, weights, 1.0))
    never = ops.cast(_NEVER, exponents.dtype)
    exponents = ops.where(is_kept, exponents + logs, never)
    return ops.logsumexp(exponents, axis=axis)


def fold_positives(
    is_positive: Tensor, step: Callable[[Tensor, Tensor], Tensor], state: Tensor
) -> Tensor:
    """Loops over the positives of all anchors, one positive per anchor a round.

    `step(chosen, state)` returns the next state; chosen is boolean (batch,
    references) with at most one True per row. Comparing every positive with
    every reference thus needs no tensor of batch x references x references. No
    gradient passes through the loop.
    """
    columns = ops.arange(ops.shape(is_positive)[1])[None, :]

    def next_round(waiting, state):
        column = ops.argmax(waiting, axis=1, keepdims=True)
        is_chosen = ops.logical_and(columns == column, waiting)
        waiting = ops.logical_and(waiting, ops.logical_not(is_chosen))
        return waiting, step(is_chosen, state)

    _, state = ops.while_loop(
        lambda waiting, state: ops.any(waiting),
        next_round,
        (is_positive, state),
    )
    return ops.stop_gradient(state)


def chosen_entries(values: Tensor, is_chosen: Tensor) -> Tensor:
    """Returns the chosen entry of each row, (batch, 1), or 0."""
    return ops.sum(ops.where(is_chosen, values, 0.0), axis=1, keepdims=True)


def _marks_pairs(labels):
    is_boolean = keras.backend.standardize_dtype(labels.dtype) == "bool"
    return is_boolean and len(labels.shape) == 2 and labels.shape[1] != 1


def _as_weights(is_positive):
    return PairWeights(
        ops.cast(is_positive, "float32"),
        ops.cast(ops.logical_not(is_positive), "float32"),
    )


def _share_a_class(labels, reference_labels):
    if len(reference_labels.shape) == 1:
        classes = ops.cast(reference_labels, "int32")
        return ops.take(ops.cast(labels, "float32"), classes, axis=1) > 0.0
    if known_to_differ(labels.shape[1:], reference_labels.shape[1:]):
        raise ValueError(
            "`labels` and `reference_labels` must have one column per class. "
            f"Received: {labels.shape[1]} and {reference_labels.shape[1]} "
            "columns."
        )
    one_side, other_side = (
        ops.cast(ops.cast(side, "float32") > 0.0, "float32")
        for side in (labels, reference_labels)
    )
    return full_matmul(one_side, ops.transpose(other_side)) > 0.0
