"""Euclidean distances between two sets of vectors, by one matrix product."""

from keras import ops

from keras_gsp._tensor import Tensor
from keras_gsp.ops.normalization import unit_ball
from keras_gsp.ops.precision import (
    at_least_float32,
    full_matmul,
    larger,
    smaller,
    unit_roundoff,
)


def pairwise_distances(vectors: Tensor, references: Tensor) -> Tensor:
    """Euclidean distances (..., n, m) of vectors (..., n, size) to references.

    The root of `|x|^2 + |y|^2 - 2 x.y`, so that memory is one number per
    pair. A square below eight units of roundoff of `|x|^2 + |y|^2` is rounding
    noise and becomes exactly 0: duplicates have distance 0. The gradient at
    distance 0 is 0. The result is float32, or float64 for float64 vectors.
    """
    vectors = at_least_float32(vectors)
    references = ops.cast(at_least_float32(references), vectors.dtype)
    sizes = ops.sum(ops.square(vectors), axis=-1)[..., :, None]
    reference_sizes = ops.sum(ops.square(references), axis=-1)[..., None, :]
    products = full_matmul(vectors, ops.swapaxes(references, -1, -2))
    return _safe_sqrt(_above_noise(sizes + reference_sizes, 2.0 * products))


def ball_distances(vectors: Tensor, references: Tensor) -> Tensor:
    """Distances (n, m) after projecting both sides onto the unit ball.

    Equals `pairwise_distances(unit_ball(vectors), unit_ball(references))`
    without storing the projected vectors: their lengths scale the products
    instead. A vector longer than 1e19 overflows float32; its products count
    as 0 and its distances stay finite.
    """
    vectors = at_least_float32(vectors)
    references = unit_ball(ops.cast(references, vectors.dtype))
    squares = ops.sum(ops.square(vectors), axis=-1, keepdims=True)
    shrink = 1.0 / ops.sqrt(larger(squares, 1.0))
    sizes = smaller(squares, 1.0)
    reference_sizes = ops.sum(ops.square(references), axis=-1)[None, :]
    products = shrink * full_matmul(vectors, ops.transpose(references))
    return _safe_sqrt(_above_noise(sizes + reference_sizes, 2.0 * products))


def _above_noise(total, twice_products):
    """`total - twice_products`, or exactly 0 where that is rounding noise."""
    squares = total - twice_products
    noise = 8.0 * unit_roundoff(total) * ops.stop_gradient(total)
    # `<=`, not `>`: a NaN is passed on instead of becoming 0.
    return ops.where(squares <= noise, ops.zeros_like(squares), squares)


def _safe_sqrt(squares):
    """The root, with gradient 0 at 0."""
    is_zero = squares == 0.0
    # Double `where`: sqrt never receives the zero whose gradient is infinite.
    safe = ops.where(is_zero, ops.ones_like(squares), squares)
    return ops.where(is_zero, ops.zeros_like(squares), ops.sqrt(safe))
