"""Euclidean distances between two sets of vectors, by one matrix product."""

from keras import ops

from keras_gsp.ops.precision import at_least_float32, unit_roundoff


def pairwise_squared_distances(vectors, references):
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
    total = sizes + reference_sizes
    squares = total - 2.0 * products
    noise = 4.0 * unit_roundoff(vectors) * ops.stop_gradient(total)
    # `<=`, not `>`, so that NaN is passed on instead of becoming 0.
    return ops.where(squares <= noise, ops.zeros_like(squares), squares)


def pairwise_distances(vectors, references):
    """Euclidean distances (not squared), with gradient zero at zero.

    Args:
        vectors: (..., n, size).
        references: (..., m, size).

    Returns:
        (..., n, m), float32 or float64.
    """
    squares = pairwise_squared_distances(vectors, references)
    is_zero = squares == 0.0
    # Double `where`: sqrt never sees the zero whose gradient is infinite.
    safe = ops.where(is_zero, ops.ones_like(squares), squares)
    return ops.where(is_zero, ops.zeros_like(squares), ops.sqrt(safe))
