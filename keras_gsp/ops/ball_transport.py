"""Partial transport from features to prototypes inside the unit ball.

Symbols: f `features`, omega `prototypes`, mu `transport_ratio`, eps
`inverse_temperature`, p the selection probabilities, v = p / (n mu) the
`weights`, a the `assignment`; the plan is pi = mu v a.
"""

from keras import ops

from keras_gsp.ops.distances import ball_distances
from keras_gsp.ops.selection import selection_probabilities
from keras_gsp.ops.tensor import Tensor
from keras_gsp.ops.transport import affinities

# Two vectors of the unit ball are at most this far apart.
_DIAMETER = 2.0


def ball_transport(
    features: Tensor,
    prototypes: Tensor,
    *,
    transport_ratio: float,
    inverse_temperature: float,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Pooling weights of features, and the prototypes they go to.

    Costs are Euclidean distances after both sides are projected onto the
    unit ball, which bounds them by 2 and spares the solver a sort.

    Args:
        features: (batch, num_features, channels).
        prototypes: (num_prototypes, channels).
        transport_ratio: number in (0, 1].
        inverse_temperature: positive number.
        mask: optional boolean (batch, num_features); a feature that is False
            has weight 0 and the ratio is taken of the others.

    Returns:
        `weights` (batch, num_features), which sum to 1 (to 0 where nothing
        is kept), and `assignment` (batch, num_features, num_prototypes),
        which sums to 1 for each feature. float32 or float64.
    """
    shape = ops.shape(features)
    # One flat product: a batched one would copy the prototypes per image.
    costs = ball_distances(
        ops.reshape(features, (-1, features.shape[-1])), prototypes
    )
    log_affinities, assignment = affinities(
        -inverse_temperature * costs, axis=-1
    )
    log_affinities = ops.reshape(log_affinities, (-1, shape[1]))
    chosen, _ = selection_probabilities(
        log_affinities,
        transport_ratio,
        mask=mask,
        spread_bound=_DIAMETER * inverse_temperature,
    )
    count = kept_features(chosen, mask)
    # p / (n mu), not (1 - n rho) / mu: nothing cancels.
    weights = chosen / (count * transport_ratio)
    return weights, ops.reshape(assignment, (-1, shape[1], prototypes.shape[0]))


def kept_features(weights: Tensor, mask: Tensor) -> Tensor:
    """Number of features that count, at least 1: a scalar or (batch, 1)."""
    if mask is None:
        return ops.cast(ops.shape(weights)[-1], weights.dtype)
    kept = ops.sum(ops.cast(mask, weights.dtype), axis=-1, keepdims=True)
    return ops.maximum(kept, 1.0)
