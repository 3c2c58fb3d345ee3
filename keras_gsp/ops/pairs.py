"""Sums over the pairs of a batch, as one number an anchor."""

from keras import ops

from keras_gsp.ops.precision import at_least_float32

# Stands for minus infinity: its exponential is 0, its gradient not NaN.
_NEVER = -1e30


def anchor_shares(row_sums, count):
    """Splits `sum(row_sums) / count` over the anchors.

    The mean of the result is that quotient, and 0 when nothing was counted.
    Keras scales a vector of terms by sample weights and by replicas; a scalar
    loss it would leave alone.

    Args:
        row_sums: (batch,), the sum over each anchor's pairs.
        count: scalar, what the total is divided by; 0 counts as 1.

    Returns:
        (batch,), in the dtype of `row_sums`.
    """
    anchors = ops.cast(ops.shape(row_sums)[0], row_sums.dtype)
    count = ops.cast(count, row_sums.dtype)
    return row_sums * (anchors / ops.maximum(count, 1.0))


def shares_of_mean_anchor(row_values, is_positive, is_negative):
    """Averages over the anchors that keep a pair, as one number an anchor.

    An anchor whose pairs are all left out counts nowhere: it is in the other
    half of a batch, or alone in it.

    Args:
        row_values: (batch,), one number an anchor, 0 without any pair.
        is_positive: boolean (batch, references).
        is_negative: boolean (batch, references).

    Returns:
        (batch,), whose mean is that average.
    """
    has_pair = ops.any(ops.logical_or(is_positive, is_negative), axis=1)
    return anchor_shares(row_values, ops.sum(ops.cast(has_pair, "int32")))


def log_one_plus_sum_exp(exponents, kept, *, axis=-1):
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
