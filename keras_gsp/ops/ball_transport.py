"""Partial transport from features to prototypes inside the unit ball.

Symbols: f `features`, omega `prototypes`, mu `transport_ratio`, eps
`inverse_temperature`, p the selection probabilities, v = p / (n mu) the
`weights`, rho = (1 - p) / n the `residual`, a the `assignment`, u
`leaving_direction`; the plan is pi = mu v a.
"""

from typing import NamedTuple

from keras import ops

from keras_gsp.ops.distances import ball_distances
from keras_gsp.ops.normalization import unit_ball
from keras_gsp.ops.precision import at_least_float32
from keras_gsp.ops.selection import selection_probabilities
from keras_gsp.ops.tensor import Tensor
from keras_gsp.ops.transport import affinities

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
