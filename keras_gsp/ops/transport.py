"""Entropic partial transport from features to prototypes, in closed form.

Symbols: c `costs`, eps `inverse_temperature`, r `transport_ratio`,
b_j = logsumexp_i(-eps c_ij) `log_affinities`, a_ij = softmax_i(-eps c_ij),
t the threshold, p_j = sigmoid(b_j + t) the selection probability of feature
j, rho_j = (1 - p_j) / n its `residual`, pi_ij = a_ij p_j / n the `plan`.

The plan of the entropic problem (P2) depends on the costs only through a and
b, and on the marginals only through one number: the threshold at which the
probabilities average to the ratio. `selection.py` finds it and
gives it its gradient.
"""

import math
import numbers
from typing import NamedTuple

from keras import ops

from keras_gsp.ops.distances import ball_distances
from keras_gsp.ops.normalization import unit_ball
from keras_gsp.ops.precision import at_least_float32
from keras_gsp.ops.selection import (
    check_transport_ratio,
    selection_probabilities,
)
from keras_gsp.ops.tensor import Tensor

# Two vectors of the unit ball are at most this far apart.
_DIAMETER = 2.0


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
