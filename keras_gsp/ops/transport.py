r"""Entropic partial transport from features to prototypes, solved exactly.

Symbols: c `costs` (m prototypes, n features), eps `inverse_temperature`, r
`transport_ratio`, pi `plan` (mass moved), rho `residual` (mass left behind).

The solution of the problem, stated in `partial_transport`, needs one unknown
number, the threshold t:

.. math:: a_{ij} = \text{softmax}_i(-\varepsilon c_{ij}), \quad
    b_j = \text{logsumexp}_i(-\varepsilon c_{ij}), \quad
    p_j = \sigma(b_j + t), \quad
    \pi_{ij} = \frac{a_{ij} p_j}{n}, \quad \rho_j = \frac{1 - p_j}{n}

with t such that :math:`\frac{1}{n} \sum_j p_j = r`.

From top to bottom: `partial_transport` and `ball_transport` (costs to plan, by
ordinary autodiff), `selection_probabilities` (b to p), `_selection_logits` (the
closed-form gradient of b + t), `selection_threshold` (the solver for t). Names
there: `log_affinities` b, `assignment` a, `chosen` p, `refused` q = 1 - p,
`log_odds` L = log(r / (1 - r)).
"""

import math
import numbers
from typing import NamedTuple

import keras
from keras import ops

from keras_gsp._checks import check_interval, check_positive
from keras_gsp._tensor import Tensor
from keras_gsp.ops.distances import ball_distances
from keras_gsp.ops.precision import (
    at_least_float32,
    larger,
    smaller,
    smallest_normal,
    unit_roundoff,
)

# Two vectors of the unit ball are at most this far apart.
_DIAMETER = 2.0
# Bisections narrow the bracket of t to this width; Halley's steps do the rest.
_HALLEY_WIDTH = 4.0
_HALLEY_STEPS = {"float32": 5, "float64": 6}
# The sorted bracket is O(log n) wide whatever the affinities.
_BISECTIONS_AFTER_SORT = 4


def partial_transport(
    costs: Tensor,
    *,
    transport_ratio: float | Tensor,
    inverse_temperature: float | Tensor,
    mask: Tensor | None = None,
    cost_bound: float | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Moves a fraction of the features' mass to prototypes, at least cost.

    Solves the entropic partial transport problem

    .. math:: \min_{\pi, \rho \ge 0} \sum_{ij} c_{ij} \pi_{ij}
        + \frac{1}{\varepsilon} \Big( \sum_{ij} \pi_{ij} \log \pi_{ij}
        + \sum_j \rho_j \log \rho_j \Big)
        \quad \text{s.t.} \quad \rho_j + \sum_i \pi_{ij} = \frac{1}{n},
        \quad \sum_{ij} \pi_{ij} = r

    to rounding error, with constant memory. The gradient is closed form and
    equals Proposition 4.2 of the paper as corrected: :math:`\partial L /
    \partial c_{ij} = -\varepsilon \pi_{ij} (g_{ij} - n (q_j - \eta \rho_j /
    (1 - r - n \rho^\top \rho)))`. The printed form multiplies :math:`q - \eta
    / (\cdot)` as a whole by :math:`\rho`, which is not the derivative.

    Args:
        costs: (..., num_prototypes, num_features), any finite numbers.
        transport_ratio: r, fraction of the mass to move: a number in (0, 1],
            or a tensor in (0, 1) that broadcasts to (..., 1) and gets a
            gradient.
        inverse_temperature: epsilon, a positive number or tensor; large is
            sharp.
        mask: boolean (..., num_features), or `None`. A feature that is False
            has no mass; the ratio refers to the others.
        cost_bound: upper bound on the difference between two costs, where
            known (2 in the unit ball). Replaces a sort by a few bisections;
            a bound that is too small gives wrong results.

    Returns:
        `residual` (..., num_features), the mass left behind, and `plan` (...,
        num_prototypes, num_features), the mass moved. Residual and plan of
        each feature sum to 1 / num_features, the whole plan sums to
        `transport_ratio`. float32, or float64 for float64 costs.

    Raises:
        ValueError: a ratio outside (0, 1], an inverse temperature that is not
            positive and finite, costs of rank below 2.

    Example:

    ```python
    costs = np.array([[0.0, 1.0, 2.0, 2.0]], "float32")
    residual, plan = gsp.ops.partial_transport(
        costs, transport_ratio=0.5, inverse_temperature=20.0
    )
    # The two cheapest of four features are moved, a quarter each.
    assert np.allclose(plan, [[0.25, 0.25, 0.0, 0.0]], atol=1e-3)
    assert np.allclose(residual, [0.0, 0.0, 0.25, 0.25], atol=1e-3)
    ```

    Reference:
        Generalized Sum Pooling for Metric Learning, (P2), Algorithm 1 and
        Proposition 4.2.
    """
    check_transport_ratio(transport_ratio)
    if isinstance(inverse_temperature, numbers.Real):
        check_positive(inverse_temperature=float(inverse_temperature))
    costs = at_least_float32(costs)
    if len(costs.shape) < 2:
        raise ValueError(
            "`costs` must have shape (..., num_prototypes, num_features). "
            f"Received: shape {tuple(costs.shape)}."
        )
    scale = ops.convert_to_tensor(inverse_temperature, dtype=costs.dtype)
    log_affinities, assignment = affinities(-scale * costs, axis=-2)
    spread = None
    if cost_bound is not None:
        spread = float(cost_bound) * float(inverse_temperature)
    chosen, refused = selection_probabilities(
        log_affinities, transport_ratio, mask=mask, spread_bound=spread
    )
    count = kept_features(chosen, mask)
    plan = assignment * ops.expand_dims(chosen / count, axis=-2)
    return refused / count, plan


class BallTransport(NamedTuple):
    """Partial transport between features and prototypes in the unit ball.

    Attributes:
        weights: (batch, num_features), p / (n r), sum to 1, or to 0 where
            nothing is kept.
        residual: (batch, num_features), mass left behind, sums to 1 - r.
        assignment: (batch, num_features, num_prototypes), sums to 1 for each
            feature.
    """

    weights: Tensor
    residual: Tensor
    assignment: Tensor


def ball_transport(
    features: Tensor,
    prototypes: Tensor,
    *,
    transport_ratio: float | Tensor,
    inverse_temperature: float,
    mask: Tensor | None = None,
    log_odds: Tensor | None = None,
) -> BallTransport:
    """Solves partial transport with distances in the unit ball as costs.

    Features (batch, num_features, channels) and prototypes (num_prototypes,
    channels) are projected onto the unit ball, which bounds their distances by
    2 and spares the solver a sort. `log_odds` is a learned ratio in the form
    that has more digits.
    """
    shape = ops.shape(features)
    # One flat product: a batched one would copy the prototypes per image.
    flat = ops.reshape(features, (-1, features.shape[-1]))
    costs = ball_distances(flat, prototypes)
    log_affinities, assignment = affinities(
        -inverse_temperature * costs, axis=-1
    )
    chosen, refused = selection_probabilities(
        ops.reshape(log_affinities, (-1, shape[1])),
        transport_ratio,
        mask=mask,
        spread_bound=_DIAMETER * inverse_temperature,
        log_odds=log_odds,
    )
    count = kept_features(chosen, mask)
    return BallTransport(
        # p / (n r), not (1 - n rho) / r: nothing cancels.
        weights=chosen / (count * transport_ratio),
        residual=refused / count,
        assignment=ops.reshape(assignment, (-1, shape[1], prototypes.shape[0])),
    )


def affinities(scaled: Tensor, *, axis: int) -> tuple[Tensor, Tensor]:
    """Returns b = logsumexp and a = softmax along the axis of the prototypes.

    Both come from one exponential; a sums to 1 even where b has lost digits.
    """
    largest = ops.stop_gradient(ops.max(scaled, axis=axis, keepdims=True))
    shares = ops.exp(scaled - largest)
    total = ops.sum(shares, axis=axis, keepdims=True)
    return ops.squeeze(largest + ops.log(total), axis=axis), shares / total


def kept_features(weights: Tensor, mask: Tensor | None) -> Tensor:
    """Number of features that count, at least 1: a scalar or (..., 1)."""
    if mask is None:
        return ops.cast(ops.shape(weights)[-1], weights.dtype)
    kept = ops.sum(ops.cast(mask, weights.dtype), axis=-1, keepdims=True)
    return larger(kept, 1.0)


def check_transport_ratio(transport_ratio: float | Tensor) -> float | Tensor:
    """Returns a ratio, or raises `ValueError` for a number not in (0, 1]."""
    if isinstance(transport_ratio, numbers.Real):
        check_interval("(0, 1]", transport_ratio=transport_ratio)
    return transport_ratio


def selection_probabilities(
    log_affinities: Tensor,
    transport_ratio: float | Tensor,
    *,
    mask: Tensor | None = None,
    spread_bound: float | None = None,
    log_odds: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Returns the selection probabilities p of features, and 1 - p.

    .. math:: p_j = \sigma(b_j + t), \quad
              \frac{1}{n} \sum_j p_j = r

    Both are (..., n) to full relative precision, and 0 where the mask is False.
    The number 1 as ratio chooses everything, without a solver. `spread_bound`
    bounds the difference between two affinities of a row, 2 eps for distances
    in the unit ball; with `None` the solver sorts them. `log_odds`, L, replaces
    the ratio: a learned ratio near 1 keeps its digits.
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
    """L = log(r / (1 - r)), shaped (..., 1) like a row of the affinities."""
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
    """The logits x = b + t, with their closed-form gradient.

    t(b, L) solves mean_j sigmoid(b_j + t) = r over the kept features. Implicit
    differentiation, with w_j = p_j q_j, gives

        dt/db_j = -w_j / sum(w),    dt/dL = n r (1 - r) / sum(w),

    hence for an upstream gradient g of x

        dL/db_j = g_j - w_j sum(g) / sum(w)
        dL/dL   = n r (1 - r) sum(g) / sum(w).

    sum(w) may underflow where the selection is sharp. g carries a factor w and
    underflows with it, so the quotient stays bounded. On TensorFlow,
    `ops.custom_gradient` is `tf.custom_gradient`.
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
            total = larger(total, smallest_normal(total))
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


def _own_ops(tensor):
    """PyTorch's functions for its tensors, else Keras's.

    Keras's take several times as long there, and copy numbers to a GPU.
    """
    if keras.backend.backend() == "torch":
        import torch

        if isinstance(tensor, torch.Tensor):
            return torch
    return ops


def sigmoid_pair(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Returns sigmoid(x) and sigmoid(-x), both to full relative precision."""
    own = _own_ops(logits)
    decay = own.exp(-own.abs(logits))
    larger = 1.0 / (1.0 + decay)
    smaller = decay * larger
    is_positive = logits >= 0.0
    return (
        own.where(is_positive, larger, smaller),
        own.where(is_positive, smaller, larger),
    )


def selection_threshold(
    log_affinities: Tensor,
    log_odds: Tensor,
    kept: Tensor,
    *,
    spread_bound: float | None = None,
) -> Tensor:
    """Solves mean(sigmoid(b + t)) = r over the kept features; returns b + t.

    A fixed number of steps, so that XLA compiles straight-line code: a bracket
    of t, bisections, then Halley's method on

        error(t) = log(mean p) - log(mean q) - L,

    which is symmetric and keeps its digits for ratios near 0 and 1. Affinities
    b and `kept` (at least one 1 in a row) are (..., n), `log_odds` (..., 1).
    Rows do not mix: a NaN stays in its row.
    """
    weights = kept / ops.sum(kept, axis=-1, keepdims=True)
    if spread_bound is None:
        low, high = _sorted_bracket(log_affinities, log_odds, kept)
        rounds = _BISECTIONS_AFTER_SORT
    else:
        low, high = _range_bracket(log_affinities, log_odds, kept)
        rounds = max(0, math.ceil(math.log2(spread_bound / _HALLEY_WIDTH)))
    for _ in range(rounds):
        low, high = _bisect(log_affinities, log_odds, weights, low, high)
    # Re-center: entries near the threshold become exact small numbers.
    start = 0.5 * (low + high)
    pad = 1e-2 + 8.0 * unit_roundoff(start) * ops.abs(start)
    centered = log_affinities + start
    return centered + _halley(
        centered, log_odds, weights, low - start - pad, high - start + pad
    )


def _range_bracket(log_affinities, log_odds, kept):
    """The threshold puts the largest logit above L, the smallest below."""
    is_kept = kept > 0.0
    highest = ops.max(
        ops.where(is_kept, log_affinities, -math.inf), axis=-1, keepdims=True
    )
    lowest = ops.min(
        ops.where(is_kept, log_affinities, math.inf), axis=-1, keepdims=True
    )
    return log_odds - highest, log_odds - lowest


def _sorted_bracket(log_affinities, log_odds, kept):
    """Bounds from the order statistics, b sorted downwards, s = n r.

    The k largest terms are at least sigmoid(b_k + t), so k sigmoid(b_k + t)
    <= s; all others are at most sigmoid(b_(k+1) + t). A k too close to s is
    skipped, which only widens the bracket.
    """
    dtype = log_affinities.dtype
    size = ops.shape(log_affinities)[-1]
    count = ops.sum(kept, axis=-1, keepdims=True)
    chosen, refused = sigmoid_pair(log_odds)
    mass, rest = count * chosen, count * refused
    ordered = -ops.sort(
        -ops.where(kept > 0.0, log_affinities, -math.inf), axis=-1
    )
    before = ops.cast(ops.arange(size), dtype)
    margin = 16.0 * unit_roundoff(log_affinities) * count

    room = mass - before
    is_lower = (room > margin) & (before < count)
    safe = ops.where(is_lower, room, ops.ones_like(room))
    lower = ops.where(
        is_lower, ops.log(safe) - ops.log(rest) - ordered, -math.inf
    )
    excess = (before + 1.0) - mass
    is_upper = (excess > margin) & (before + 1.0 <= count)
    safe = ops.where(is_upper, excess, ops.ones_like(excess))
    upper = ops.where(
        is_upper, ops.log(mass) - ops.log(safe) - ordered, math.inf
    )
    low, high = _range_bracket(log_affinities, log_odds, kept)
    return (
        larger(low, ops.max(lower, axis=-1, keepdims=True)),
        smaller(high, ops.min(upper, axis=-1, keepdims=True)),
    )


def _error(logits, log_odds, weights):
    """The error in logit space, with the terms it is made of."""
    own = _own_ops(logits)
    chosen, refused = sigmoid_pair(logits)
    mean_chosen = own.sum(weights * chosen, axis=-1, keepdims=True)
    mean_refused = own.sum(weights * refused, axis=-1, keepdims=True)
    error = own.log(mean_chosen) - own.log(mean_refused) - log_odds
    return error, chosen, refused, mean_chosen, mean_refused


def _bisect(log_affinities, log_odds, weights, low, high):
    own = _own_ops(low)
    middle = 0.5 * (low + high)
    is_below = _error(log_affinities + middle, log_odds, weights)[0] < 0.0
    return (
        own.where(is_below, middle, low),
        own.where(is_below, high, middle),
    )


def _halley(centered, log_odds, weights, low, high):
    """Halley's steps, kept inside the bracket, frozen at rounding noise."""
    own = _own_ops(low)
    tolerance = unit_roundoff(centered) * (1.0 + own.abs(log_odds))
    step = own.zeros_like(low)
    dtype = "float64" if "float64" in str(centered.dtype) else "float32"
    for _ in range(_HALLEY_STEPS[dtype]):
        error, chosen, refused, mean_chosen, mean_refused = _error(
            centered + step, log_odds, weights
        )
        low = own.where(error <= 0.0, step, low)
        high = own.where(error >= 0.0, step, high)
        slopes = weights * chosen * refused
        slope = own.sum(slopes, axis=-1, keepdims=True)
        bend = own.sum(slopes * (refused - chosen), axis=-1, keepdims=True)
        scale = mean_chosen * mean_refused
        first = slope / scale
        second = (
            bend - own.square(slope) * (mean_refused - mean_chosen) / scale
        ) / scale
        denominator = 2.0 * own.square(first) - error * second
        move = own.where(
            denominator > 0.0,
            -2.0 * error * first / denominator,
            -error / first,
        )
        proposal = step + move
        is_inside = (low <= proposal) & (proposal <= high)
        proposal = own.where(is_inside, proposal, 0.5 * (low + high))
        step = own.where(own.abs(error) <= tolerance, step, proposal)
    return step
