"""Euclidean distances between two sets of vectors, by one matrix product."""

from keras import ops

from keras_gsp.ops.normalization import unit_ball
from keras_gsp.ops.precision import at_least_float32, unit_roundoff
from keras_gsp.ops.tensor import Tensor


def pairwise_squared_distances(vectors: Tensor, references: Tensor) -> Tensor:
    """Squared Euclidean distances, all vectors against all references.

    `|x|^2 + |y|^2 - 2 x.y`: memory is one number a pair, not one vector. What
    the cancellation leaves below four units of roundoff of `|x|^2 + |y|^2`
    is noise and becomes exactly 0, so that duplicates have distance 0.

    Args:
        vectors: (..., n, size).
        references: (..., m, size).

    Returns:
        (..., n, m), float32 or float64, never negative.
    """
    vectors = at_least_float32(vectors)
    references = ops.cast(at_least_float32(references), vectors.dtype)
    sizes = ops.sum(ops.square(vectors), axis=-1)[..., :, None]
    reference_sizes = ops.sum(ops.square(references), axis=-1)[..., None, :]
    products = ops.matmul(vectors, ops.swapaxes(references, -1, -2))
    return _above_noise(sizes + reference_sizes, 2.0 * products)


def pairwise_distances(vectors: Tensor, references: Tensor) -> Tensor:
    """Euclidean distances (not squared), with gradient zero at zero.

    Args:
        vectors: (..., n, size).
        references: (..., m, size).

    Returns:
        (..., n, m), float32 or float64.
    """
    return _safe_sqrt(pairwise_squared_distances(vectors, references))


def ball_distances(vectors: Tensor, references: Tensor) -> Tensor:
    """Euclidean distances after both sides are projected onto the unit ball.

    Equals `pairwise_distances(unit_ball(vectors), unit_ball(references))`
    without forming the projected vectors: their lengths scale the products
    instead, which spares several passes over the larger side. A vector longer
    than 1e19 overflows float32 and counts as the center of the ball in its
    products; the distance stays finite.

    Args:
        vectors: (n, size), the many.
        references: (m, size), the few.

    Returns:
        (n, m), float32 or float64, in [0, 2].
    """
    vectors = at_least_float32(vectors)
    references = unit_ball(ops.cast(references, vectors.dtype))
    squares = ops.sum(ops.square(vectors), axis=-1, keepdims=True)
    shrink = 1.0 / ops.sqrt(ops.maximum(squares, 1.0))
    sizes = ops.minimum(squares, 1.0)
    reference_sizes = ops.sum(ops.square(references), axis=-1)[None, :]
    products = shrink * ops.matmul(vectors, ops.transpose(references))
    return _safe_sqrt(_above_noise(sizes + reference_sizes, 2.0 * products))


def _above_noise(total, twice_products):
    """Total minus 2 x.y, or exactly 0 where rounding has left nothing of it."""
    squares = total - twice_products
    noise = 4.0 * unit_roundoff(total) * ops.stop_gradient(total)
    # `<=`, not `>`, so that NaN is passed on instead of becoming 0.
    return ops.where(squares <= noise, ops.zeros_like(squares), squares)


def _safe_sqrt(squares):
    """The root, with gradient zero at zero."""
    is_zero = squares == 0.0
    # Double `where`: sqrt never sees the zero whose gradient is infinite.
    safe = ops.where(is_zero, ops.ones_like(squares), squares)
    return ops.where(is_zero, ops.zeros_like(squares), ops.sqrt(safe))
