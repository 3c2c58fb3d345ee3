"""The pairs of a batch: how much each counts, and sums over them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_gsp.ops.labels import flat_labels, numeric_labels, same_class
from keras_gsp.ops.precision import at_least_float32

LABEL_KINDS = ("class", "multi_hot", "pairs")

# Stands for minus infinity: its exponential is 0, its gradient not NaN.
_NEVER = -1e30


class PairWeights(NamedTuple):
    """How much each pair counts as a positive, and as a negative one.

    A pair that counts as neither is left out of every sum and every count.

    Args:
        positive: (batch, references), floats, at least 0.
        negative: (batch, references), floats, at least 0.
    """

    positive: Any
    negative: Any

    def without(self, is_left_out: Any) -> "PairWeights":
        """Returns the weights, 0 where `is_left_out` (batch, references)."""
        kept = ops.cast(ops.logical_not(is_left_out), self.positive.dtype)
        return PairWeights(self.positive * kept, self.negative * kept)

    def cast(self, dtype: str) -> "PairWeights":
        """Returns the weights in another dtype."""
        return PairWeights(
            ops.cast(self.positive, dtype), ops.cast(self.negative, dtype)
        )


def checked_pair_labels(labels: Any, kind: str) -> Any:
    """Returns labels as one of the `LABEL_KINDS`, refusing what is none.

    Args:
        labels: for `"class"`: (batch,) or (batch, 1), or a boolean matrix
            (batch, references), which is read as `"pairs"`. For
            `"multi_hot"`: (batch, num_classes). For `"pairs"`: (batch,
            references), booleans or numbers.
        kind: one of the `LABEL_KINDS`.

    Returns:
        (batch,) class labels, or a matrix as given.

    Raises:
        TypeError: strings.
        ValueError: another rank.
    """
    labels = numeric_labels(labels)
    shape = tuple(labels.shape)
    if kind == "class" and not _says_which_pairs(labels):
        if len(shape) == 2 and shape[-1] != 1:
            raise ValueError(
                "`labels` must have shape (batch,) or (batch, 1), or be a "
                "boolean matrix that says which pairs are positive. Received: "
                f"shape {shape}. Numbers with one row a sample need "
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


def checked_reference_labels(labels: Any, kind: str) -> Any:
    """Returns the labels of references, where class numbers always serve."""
    labels = numeric_labels(labels)
    if len(labels.shape) == 1:
        return labels
    return checked_pair_labels(labels, kind)


def pair_weights(
    labels: Any,
    reference_labels: Any,
    *,
    kind: str = "class",
    ignored_label: int | None = None,
) -> PairWeights:
    """Says which pairs are positive, which negative, and how much they count.

    - `"class"`: equal labels are a positive pair, unequal ones a negative
      one; a sample labeled `ignored_label` has no pairs at all.
    - `"multi_hot"`: samples that share a class are a positive pair; a
      reference may have its class number instead of a row.
    - `"pairs"`: `labels` itself is the answer. True or a number w above 0 is
      a positive pair that counts w times, False or 0 a negative pair, a
      number below 0 (or NaN) no pair.

    Args:
        labels: as `checked_pair_labels` returned them.
        reference_labels: as `checked_reference_labels` returned them; not
            looked at where `labels` say which pairs are positive.
        kind: one of the `LABEL_KINDS`.
        ignored_label: int, or `None`.

    Returns:
        Float32 weights (batch, references).

    Raises:
        ValueError: matrices that do not fit each other.
    """
    if kind == "pairs" or (kind == "class" and _says_which_pairs(labels)):
        weights = ops.cast(labels, "float32")
        return PairWeights(
            ops.where(weights > 0.0, weights, 0.0),
            ops.cast(weights == 0.0, "float32"),
        )
    if reference_labels is None:
        raise ValueError(
            "`reference_labels` must be given unless `labels` are a matrix "
            "that says which pairs are positive. Received: None."
        )
    if kind == "multi_hot":
        is_positive = _share_a_class(labels, reference_labels)
        return _as_weights(is_positive)
    weights = _as_weights(same_class(labels, reference_labels))
    if ignored_label is None:
        return weights
    is_ignored = ops.logical_or(
        (labels == ops.cast(ignored_label, labels.dtype))[:, None],
        (reference_labels == ops.cast(ignored_label, reference_labels.dtype))[
            None, :
        ],
    )
    return weights.without(is_ignored)


def anchor_shares(row_sums: Any, count: Any) -> Any:
    """Splits `sum(row_sums) / count` over the anchors.

    The mean of the result is that quotient, and 0 when nothing was counted.
    Keras scales a vector of terms by sample weights and by replicas; a scalar
    loss it would leave alone.

    Args:
        row_sums: (batch,), the sum over each anchor's pairs.
        count: scalar, what the total is divided by; where nothing counts, 0.

    Returns:
        (batch,), in the dtype of `row_sums`.
    """
    anchors = ops.cast(ops.shape(row_sums)[0], row_sums.dtype)
    count = ops.cast(count, row_sums.dtype)
    return row_sums * (anchors / ops.where(count > 0.0, count, 1.0))


def shares_of_mean_anchor(row_values: Any, positive: Any, negative: Any) -> Any:
    """Averages over the anchors that keep a pair, as one number an anchor.

    An anchor whose pairs are all left out counts nowhere: it is in the other
    half of a batch, or alone in it.

    Args:
        row_values: (batch,), one number an anchor, 0 without any pair.
        positive: weights (batch, references).
        negative: weights (batch, references).

    Returns:
        (batch,), whose mean is that average.
    """
    has_pair = ops.any(positive + negative > 0.0, axis=1)
    return shares_of_mean_over(row_values, has_pair)


def shares_of_mean_over(row_values: Any, is_counted: Any) -> Any:
    """Averages over some anchors, as one number an anchor.

    Args:
        row_values: (batch,).
        is_counted: boolean (batch,).

    Returns:
        (batch,), 0 where not counted, whose mean is that average.
    """
    kept = ops.where(is_counted, row_values, ops.zeros_like(row_values))
    return anchor_shares(kept, ops.sum(ops.cast(is_counted, "int32")))


def log_one_plus_sum_exp(exponents: Any, kept: Any, *, axis: Any = -1) -> Any:
    """Returns `log(1 + sum(exp(exponents)))` over the kept entries.

    The logsumexp of the entries with a zero appended, written as
    `softplus(logsumexp)`: no exponent overflows, an empty row gives 0.

    Args:
        exponents: tensor, any shape.
        kept: boolean, same shape; the other entries are left out.
        axis: the axis or axes summed over.

    Returns:
        `exponents` without `axis`, float32 or float64, never negative.
    """
    exponents = at_least_float32(exponents)
    never = ops.cast(_NEVER, exponents.dtype)
    exponents = ops.where(kept, exponents, never)
    return ops.softplus(ops.logsumexp(exponents, axis=axis))


def weighted_logsumexp(exponents: Any, weights: Any, *, axis: int = -1) -> Any:
    """Returns `log(sum(weights * exp(exponents)))`.

    Args:
        exponents: float32 or float64, any shape.
        weights: same shape, at least 0; an entry of weight 0 is left out.
        axis: the axis summed over.

    Returns:
        `exponents` without `axis`; about -1e30 where all weights are 0.
    """
    is_kept = weights > 0.0
    logs = ops.log(ops.where(is_kept, weights, 1.0))
    never = ops.cast(_NEVER, exponents.dtype)
    exponents = ops.where(is_kept, exponents + logs, never)
    return ops.logsumexp(exponents, axis=axis)


def fold_positives(
    is_positive: Any, step: Callable[[Any, Any], Any], state: Any
) -> Any:
    """Goes through the positives of all anchors, one of each in a round.

    As many rounds as the anchor with most positives has, each with tensors of
    the size of `is_positive`: what compares every positive with every other
    reference needs no tensor of batch x references x references. No gradient
    passes through it.

    Args:
        is_positive: boolean (batch, references).
        step: from the positives of a round, boolean (batch, references) with
            at most one True a row, and the state to the next state.
        state: tensor.

    Returns:
        The state after the last round.
    """
    columns = ops.arange(ops.shape(is_positive)[1])[None, :]

    def some_are_left(waiting, state):
        del state
        return ops.any(waiting)

    def next_round(waiting, state):
        column = ops.argmax(waiting, axis=1, keepdims=True)
        is_chosen = ops.logical_and(columns == column, waiting)
        waiting = ops.logical_and(waiting, ops.logical_not(is_chosen))
        return waiting, step(is_chosen, state)

    _, state = ops.while_loop(some_are_left, next_round, (is_positive, state))
    return ops.stop_gradient(state)


def chosen_entries(values: Any, is_chosen: Any) -> Any:
    """Returns each row's chosen entry, (batch, 1); 0 where none is chosen."""
    return ops.sum(
        ops.where(is_chosen, values, ops.zeros_like(values)),
        axis=1,
        keepdims=True,
    )


def _says_which_pairs(labels):
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
    sizes = labels.shape[1], reference_labels.shape[1]
    if None not in sizes and sizes[0] != sizes[1]:
        raise ValueError(
            "`labels` and `reference_labels` must have one column a class. "
            f"Received: {sizes[0]} and {sizes[1]} columns."
        )
    one_side, other_side = (
        ops.cast(ops.cast(side, "float32") > 0.0, "float32")
        for side in (labels, reference_labels)
    )
    return ops.matmul(one_side, ops.transpose(other_side)) > 0.0
