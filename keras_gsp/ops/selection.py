"""Chooses a fraction of the features: the kernel with its own gradient.

Symbols: b `log_affinities`, r `transport_ratio`, L = log(r / (1 - r)), t the
threshold, x = b + t, p = sigmoid(x) the selection probabilities, q = 1 - p,
w = p q.
"""

import math
import numbers

from keras import ops

from keras_gsp.ops.precision import at_least_float32, smallest_normal
from keras_gsp.ops.tensor import Tensor
from keras_gsp.ops.threshold import selection_threshold, sigmoid_pair


def check_transport_ratio(transport_ratio: float) -> float:
    """Raises `ValueError` when a plain number is not in (0, 1]."""
    if isinstance(transport_ratio, numbers.Real) and not (
        0.0 < transport_ratio <= 1.0
    ):
        raise ValueError(
            "`transport_ratio` must be in (0, 1]. "
            f"Received: transport_ratio={transport_ratio}."
        )
    return transport_ratio


def selection_probabilities(
    log_affinities: Tensor,
    transport_ratio: float | Tensor,
    *,
    mask: Tensor | None = None,
    spread_bound: float | None = None,
    log_odds: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Chooses features so that their probabilities average to the ratio.

    .. math:: p_j = \sigma(b_j + t), \quad
              \frac{1}{n} \sum_j p_j = r

    Args:
        log_affinities: (..., n), the b of the module's table.
        transport_ratio: fraction of features to choose, a number in (0, 1] or
            a tensor in (0, 1) that broadcasts to (..., 1) and gets a
            gradient. The number 1 chooses everything, without a solver.
        mask: optional boolean (..., n); a feature that is False has
            probability 0 and the ratio is taken of the others.
        spread_bound: upper bound on the difference between two affinities of
            a row, for example 2 eps for distances in the unit ball. Spares
            the sort that brackets the threshold when it is `None`.
        log_odds: optional tensor that broadcasts to (..., 1), the L of the
            module's table; given, it stands for the ratio. A ratio that is
            learnt close to 1 keeps its digits so.

    Returns:
        Two tensors (..., n), float32 or float64: p and, to full relative
        precision, 1 - p. Both are 0 where the mask is False.

    Raises:
        ValueError: a number outside (0, 1].
    """
    check_transport_ratio(transport_ratio)
    log_affinities = at_least_float32(log_affinities)
    if mask is None:
        kept = ops.ones_like(log_affinities)
    else:
        kept = ops.cast(mask, log_affinities.dtype)
        kept = ops.broadcast_to(kept, ops.shape(log_affinities))
    if isinstance(transport_ratio, numbers.Real) and transport_ratio == 1.0:
        # Exact; the NaN of a bad row still shows.
        chosen = kept + 0.0 * log_affinities
        return chosen, ops.zeros_like(chosen)
    logits = _selection_logits(
        log_affinities,
        _log_odds(transport_ratio, log_odds, log_affinities),
        kept,
        spread_bound,
    )
    chosen, refused = sigmoid_pair(logits)
    return kept * chosen, kept * refused


def _log_odds(transport_ratio, log_odds, log_affinities):
    """log(r / (1 - r)), shaped (..., 1) like a row of the affinities."""
    zero = ops.zeros_like(log_affinities[..., :1])
    if log_odds is not None:
        return zero + ops.cast(log_odds, log_affinities.dtype)
    if isinstance(transport_ratio, numbers.Real):
        # math, not ops: the constant keeps its digits in float64.
        ratio = float(transport_ratio)
        return zero + (math.log(ratio) - math.log1p(-ratio))
    ratio = ops.cast(transport_ratio, log_affinities.dtype)
    return zero + (ops.log(ratio) - ops.log1p(-ratio))


def _selection_logits(log_affinities, log_odds, kept, spread_bound):
    """The solver with its closed-form gradient (on TF `tf.custom_gradient`).

    x_j = b_j + t(b, L) with mean(sigmoid(x)) = r over the kept features.
    With w_j = p_j q_j, implicit differentiation gives dt/db_j = -w_j / sum(w)
    and dt/dL = n r (1 - r) / sum(w), hence, for an upstream gradient g,

        dL/db_j = g_j - w_j sum(g) / sum(w)
        dL/dL   = n r (1 - r) sum(g) / sum(w).

    sum(w) may underflow where the selection is sharp; g, which carries a
    factor w itself, underflows with it, and the quotient stays bounded.
    """

    @ops.custom_gradient
    def solve(log_affinities, log_odds, kept):
        is_empty = ops.sum(kept, axis=-1, keepdims=True) == 0.0
        counted = ops.where(is_empty, ops.ones_like(kept), kept)
        logits = selection_threshold(
            log_affinities, log_odds, counted, spread_bound=spread_bound
        )
        chosen, refused = sigmoid_pair(logits)
        slopes = counted * chosen * refused

        def gradient(*inputs, upstream=None):
            if upstream is None:
                (upstream,) = inputs
            total = ops.sum(slopes, axis=-1, keepdims=True)
            total = ops.maximum(total, smallest_normal(total))
            pull = ops.sum(counted * upstream, axis=-1, keepdims=True) / total
            above, below = sigmoid_pair(log_odds)
            count = ops.sum(counted, axis=-1, keepdims=True)
            return (
                counted * (upstream - slopes * pull),
                count * above * below * pull,
                ops.zeros_like(kept),
            )

        return logits, gradient

    return solve(log_affinities, log_odds, kept)
