"""Entropic partial transport from features to prototypes, in closed form.

Symbols: c `costs`, eps `inverse_temperature`, r `transport_ratio`,
b_j = logsumexp_i(-eps c_ij) `log_affinities`, a_ij = softmax_i(-eps c_ij),
t the threshold, x_j = b_j + t, p_j = sigmoid(x_j) the selection probability
of feature j (`chosen` in the solver), q = 1 - p (`refused`), w = p q,
L = log(r / (1 - r)), rho_j = q_j / n its `residual`, pi_ij = a_ij p_j / n the
`plan`.

The plan of the entropic problem (P2) depends on the costs only through a and
b, and on the marginals only through one number: the threshold at which the
probabilities average to the ratio.

First the solver for it, in a fixed number of rounds, without sorting where
the spread of `b` is known, so that XLA compiles it to straight-line code. The
error it drives to zero, log(mean p) - log(mean q) - L, lives in logit space:
it is symmetric and loses no digits when the ratio nears 0 or 1. Then the
kernel around it, the only one with a gradient of its own, and the transport
around that.
"""

import math
import numbers
from typing import NamedTuple

from keras import ops

from keras_gsp.ops.distances import ball_distances
from keras_gsp.ops.normalization import unit_ball
from keras_gsp.ops.precision import (
    at_least_float32,
    smallest_normal,
    unit_roundoff,
)
from keras_gsp.ops.tensor import Tensor

# Bisections narrow the bracket to this width; Halley's steps do the rest.
_HALLEY_WIDTH = 4.0
_HALLEY_STEPS = {"float32": 5, "float64": 6}
# The sorted bracket is O(log n) wide whatever the affinities.
_BISECTIONS_AFTER_SORT = 4
# Two vectors of the unit ball are at most this far apart.
_DIAMETER = 2.0


def sigmoid_pair(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Returns sigmoid(x) and sigmoid(-x), both to full relative precision."""
    decay = ops.exp(-ops.abs(logits))
    larger = 1.0 / (1.0 + decay)
    smaller = decay * larger
    is_positive = logits >= 0.0
    return (
        ops.where(is_positive, larger, smaller),
        ops.where(is_positive, smaller, larger),
    )


def selection_threshold(
    log_affinities: Tensor,
    log_odds: Tensor,
    kept: Tensor,
    *,
    spread_bound: float | None = None,
) -> Tensor:
    """Solves mean(sigmoid(b + t)) = ratio over the kept features.

    Args:
        log_affinities: (..., n), float32 or float64.
        log_odds: (..., 1), log(ratio / (1 - ratio)).
        kept: (..., n), 1 for a feature that counts and 0 for one that does
            not; at least one is kept in each row.
        spread_bound: upper bound on the difference between two kept
            affinities of one row. With `None` the bracket comes from a sort
            and holds for any affinities.

    Returns:
        (..., n), the logits b + t. Rows do not mix: a NaN stays in its own.
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

    k terms are at least sigmoid(b_k + t), so k sigmoid(b_k + t) <= s; all
    but the first k are at most sigmoid(b_(k+1) + t). A k too close to s is
    left out, which only widens the bracket.
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
        ops.maximum(low, ops.max(lower, axis=-1, keepdims=True)),
        ops.minimum(high, ops.min(upper, axis=-1, keepdims=True)),
    )


def _error(logits, log_odds, weights):
    """Distance from the ratio in logit space, and what it was made of."""
    chosen, refused = sigmoid_pair(logits)
    mean_chosen = ops.sum(weights * chosen, axis=-1, keepdims=True)
    mean_refused = ops.sum(weights * refused, axis=-1, keepdims=True)
    error = ops.log(mean_chosen) - ops.log(mean_refused) - log_odds
    return error, chosen, refused, mean_chosen, mean_refused


def _bisect(log_affinities, log_odds, weights, low, high):
    middle = 0.5 * (low + high)
    is_below = _error(log_affinities + middle, log_odds, weights)[0] < 0.0
    return (
        ops.where(is_below, middle, low),
        ops.where(is_below, high, middle),
    )


def _halley(centered, log_odds, weights, low, high):
    """Halley's steps, kept inside the bracket, frozen at rounding noise."""
    tolerance = unit_roundoff(centered) * (1.0 + ops.abs(log_odds))
    step = ops.zeros_like(low)
    dtype = "float64" if "float64" in str(centered.dtype) else "float32"
    for _ in range(_HALLEY_STEPS[dtype]):
        error, chosen, refused, mean_chosen, mean_refused = _error(
            centered + step, log_odds, weights
        )
        low = ops.where(error <= 0.0, step, low)
        high = ops.where(error >= 0.0, step, high)
        slopes = weights * chosen * refused
        slope = ops.sum(slopes, axis=-1, keepdims=True)
        bend = ops.sum(slopes * (refused - chosen), axis=-1, keepdims=True)
        scale = mean_chosen * mean_refused
        first = slope / scale
        second = (
            bend - ops.square(slope) * (mean_refused - mean_chosen) / scale
        ) / scale
        denominator = 2.0 * ops.square(first) - error * second
        move = ops.where(
            denominator > 0.0,
            -2.0 * error * first / denominator,
            -error / first,
        )
        proposal = step + move
        is_inside = (low <= proposal) & (proposal <= high)
        proposal = ops.where(is_inside, proposal, 0.5 * (low + high))
        step = ops.where(ops.abs(error) <= tolerance, step, proposal)
    return step


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
            learned close to 1 keeps its digits so.

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


class BallTransport(NamedTuple):
    """What features and prototypes exchange; float32 or float64.

    Attributes:
        weights: (batch, num_features), sum to 1, or to 0 where nothing is
            kept.
        residual: (batch, num_features), mass left behind, sums to 1 minus
            the ratio.
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
    leaving_direction: Tensor | None = None,
) -> BallTransport:
    """Pooling weights of features, and the prototypes they go to.

    Costs are Euclidean distances after both sides are projected onto the
    unit ball, which bounds them by 2 and spares the solver a sort.

    Args:
        features: (batch, num_features, channels).
        prototypes: (num_prototypes, channels).
        transport_ratio: number in (0, 1], or a tensor in (0, 1).
        inverse_temperature: positive number.
        mask: optional boolean (batch, num_features); a feature that is False
            has weight 0 and the ratio is taken of the others.
        log_odds: optional scalar tensor, log(ratio / (1 - ratio)), where it
            is known to more digits than the ratio.
        leaving_direction: optional (channels,). A feature pays the dot
            product of itself and this vector, both in the unit ball, for
            each unit of its mass that is left behind.

    Returns:
        A `BallTransport`.
    """
    shape = ops.shape(features)
    # One flat product: a batched one would copy the prototypes per image.
    flat = ops.reshape(features, (-1, features.shape[-1]))
    costs = ball_distances(flat, prototypes)
    log_affinities, assignment = affinities(
        -inverse_temperature * costs, axis=-1
    )
    spread = _DIAMETER
    if leaving_direction is not None:
        leaving = _ball_products(flat, leaving_direction)
        log_affinities = log_affinities + inverse_temperature * leaving
        spread = 2.0 * _DIAMETER
    log_affinities = ops.reshape(log_affinities, (-1, shape[1]))
    chosen, refused = selection_probabilities(
        log_affinities,
        transport_ratio,
        mask=mask,
        spread_bound=spread * inverse_temperature,
        log_odds=log_odds,
    )
    count = kept_features(chosen, mask)
    return BallTransport(
        # p / (n mu), not (1 - n rho) / mu: nothing cancels.
        weights=chosen / (count * transport_ratio),
        residual=refused / count,
        assignment=ops.reshape(assignment, (-1, shape[1], prototypes.shape[0])),
    )


def _ball_products(vectors, direction):
    """Dot products of (n, size) with one vector, all in the unit ball."""
    vectors = at_least_float32(vectors)
    direction = unit_ball(ops.cast(direction, vectors.dtype))
    squares = ops.sum(ops.square(vectors), axis=-1)
    products = ops.matmul(vectors, direction[:, None])[:, 0]
    return products / ops.sqrt(ops.maximum(squares, 1.0))


def kept_features(weights: Tensor, mask: Tensor) -> Tensor:
    """Number of features that count, at least 1: a scalar or (batch, 1)."""
    if mask is None:
        return ops.cast(ops.shape(weights)[-1], weights.dtype)
    kept = ops.sum(ops.cast(mask, weights.dtype), axis=-1, keepdims=True)
    return ops.maximum(kept, 1.0)


def check_inverse_temperature(inverse_temperature: float) -> float:
    """Raises `ValueError` when a plain number is not positive and finite."""
    if isinstance(inverse_temperature, numbers.Real) and not (
        0.0 < inverse_temperature < math.inf
    ):
        raise ValueError(
            "`inverse_temperature` must be positive and finite. "
            f"Received: inverse_temperature={inverse_temperature}."
        )
    return inverse_temperature


def partial_transport(
    costs: Tensor,
    *,
    transport_ratio: float,
    inverse_temperature: float,
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

    exactly (to rounding), not by a number of alternating projections. The
    gradient is closed form and uses constant memory; it equals Proposition
    4.2 of the paper as corrected: :math:`\partial L / \partial c_{ij} =
    -\varepsilon \pi_{ij} (g_{ij} - n (q_j - \eta \rho_j / (1 - r - n
    \rho^\top \rho)))`. The printed form has :math:`q - \eta / (\cdot)`
    multiplied by :math:`\rho` as a whole, which is not the derivative.

    Args:
        costs: (..., num_prototypes, num_features), any finite numbers.
        transport_ratio: fraction of the mass that is moved, a number in
            (0, 1] or a tensor in (0, 1) that broadcasts to (..., 1) and gets
            a gradient.
        inverse_temperature: positive number or tensor; large is sharp.
        mask: optional boolean (..., num_features); a feature that is False
            has no mass, and the ratio is taken of the others.
        cost_bound: upper bound on the difference between two costs, where
            one is known (2 in the unit ball). It replaces a sort by a few
            bisections and must be a number; a bound that is too small gives
            wrong results.

    Returns:
        `residual` (..., num_features), the mass left behind, and `plan` (...,
        num_prototypes, num_features), the mass moved. Each feature's column
        sums to 1 / num_features with its residual, the plan to
        `transport_ratio`. float32, or float64 for float64 costs.

    Raises:
        ValueError: a ratio outside (0, 1], a temperature that is not
            positive, costs of rank below 2.

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
    check_inverse_temperature(inverse_temperature)
    costs = at_least_float32(costs)
    if len(costs.shape) < 2:
        raise ValueError(
            "`costs` must have shape (..., num_prototypes, num_features). "
            f"Received: shape {tuple(costs.shape)}."
        )
    scale = ops.cast(
        ops.convert_to_tensor(inverse_temperature, dtype=costs.dtype),
        costs.dtype,
    )
    scaled = -scale * costs
    spread = None
    if cost_bound is not None:
        spread = float(cost_bound) * float(inverse_temperature)
    log_affinities, assignment = affinities(scaled, axis=-2)
    chosen, refused = selection_probabilities(
        log_affinities,
        transport_ratio,
        mask=mask,
        spread_bound=spread,
    )
    count = ops.cast(ops.shape(costs)[-1], costs.dtype)
    if mask is not None:
        count = ops.sum(ops.cast(mask, costs.dtype), axis=-1, keepdims=True)
        count = ops.maximum(count, 1.0)
    plan = assignment * ops.expand_dims(chosen / count, axis=-2)
    return refused / count, plan


def affinities(scaled: Tensor, *, axis: int) -> tuple[Tensor, Tensor]:
    """Log-sum-exp and softmax over prototypes, from one exponential.

    Args:
        scaled: negative costs times the inverse temperature.
        axis: the axis of the prototypes.

    Returns:
        b without that axis, and a, which sums to 1 along it to rounding even
        where b itself has lost digits to its size.
    """
    largest = ops.stop_gradient(ops.max(scaled, axis=axis, keepdims=True))
    shares = ops.exp(scaled - largest)
    total = ops.sum(shares, axis=axis, keepdims=True)
    return ops.squeeze(largest + ops.log(total), axis=axis), shares / total
