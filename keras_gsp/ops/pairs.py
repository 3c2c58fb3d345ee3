"""Weights of the positive and negative pairs of a batch, and sums over them."""

from collections.abc import Callable
from typing import NamedTuple

from keras import ops

from keras_gsp._tensor import Tensor
from keras_gsp.ops.labels import same_class
from keras_gsp.ops.precision import at_least_float32

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
        is_counted = ops.cast(ops.logical_not(is_left_out), self.positive.dtype)
        return PairWeights(
            self.positive * is_counted, self.negative * is_counted
        )

    def cast(self, dtype: str) -> "PairWeights":
        """Returns the weights in another dtype."""
        return PairWeights(
            ops.cast(self.positive, dtype), ops.cast(self.negative, dtype)
        )


def pair_weights(
    labels: Tensor, reference_labels: Tensor, ignore_class: int | None = None
) -> PairWeights:
    """Computes the float32 weights (batch, references) of all pairs.

    Equal labels make a positive pair, unequal ones a negative pair; a sample
    labeled `ignore_class` has no pairs.
    """
    is_positive = same_class(labels, reference_labels)
    weights = PairWeights(
        ops.cast(is_positive, "float32"),
        ops.cast(ops.logical_not(is_positive), "float32"),
    )
    if ignore_class is None:
        return weights
    ignored, ignored_references = (
        ops.equal(x, ops.cast(ignore_class, x.dtype))
        for x in (labels, reference_labels)
    )
    return weights.without(ignored[:, None] | ignored_references[None, :])


def anchor_shares(row_sums: Tensor, count: Tensor) -> Tensor:
    """Splits `sum(row_sums) / count` into one term per anchor, (batch,).

    The mean of the terms is that quotient, and 0 when `count` is 0. Terms,
    not a scalar, because Keras scales terms by sample weights and replicas.
    """
    anchors = ops.cast(ops.shape(row_sums)[0], row_sums.dtype)
    count = ops.cast(count, row_sums.dtype)
    return row_sums * (anchors / ops.where(count > 0.0, count, 1.0))


def shares_of_mean_anchor(row_values: Tensor, pairs: PairWeights) -> Tensor:
    """Returns terms (batch,) whose mean averages over anchors with a pair."""
    has_pair = ops.any(pairs.positive + pairs.negative > 0.0, axis=1)
    return shares_of_mean_over(row_values, has_pair)


def shares_of_mean_over(row_values: Tensor, is_counted: Tensor) -> Tensor:
    """Returns terms (batch,) whose mean averages over the counted anchors."""
    counted_values = ops.where(is_counted, row_values, 0.0)
    return anchor_shares(counted_values, ops.sum(ops.cast(is_counted, "int32")))


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


def weighted_logsumexp(exponents: Tensor, weights: Tensor) -> Tensor:
    """Returns `log(sum(weights * exp(exponents)))`.

    An entry of weight 0 is left out; about -1e30 where all weights are 0.
    """
    is_kept = weights > 0.0
    logs = ops.log(ops.where(is_kept, weights, 1.0))
    never = ops.cast(_NEVER, exponents.dtype)
    exponents = ops.where(is_kept, exponents + logs, never)
    return ops.logsumexp(exponents, axis=-1)


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
