"""Unit sphere and unit ball, safe at zero and for huge vectors."""

from keras import ops

from keras_gsp._checks import check_choice
from keras_gsp._tensor import Tensor
from keras_gsp.ops.precision import at_least_float32


def vector_norm(vectors: Tensor) -> Tensor:
    """Euclidean norm over the last axis, (..., 1), with gradient 0 at 0.

    The largest entry is divided out first, so that neither 1e20 overflows
    nor 1e-30 underflows in float32.
    """
    scaled, scale = _scaled(at_least_float32(vectors))
    squares = ops.sum(ops.square(scaled), axis=-1, keepdims=True)
    is_zero = squares == 0.0
    # Double `where`: sqrt never receives the zero whose gradient is infinite.
    safe = ops.where(is_zero, ops.ones_like(squares), squares)
    return ops.where(is_zero, ops.zeros_like(squares), scale * ops.sqrt(safe))


def _scaled(vectors):
    """Vectors with largest entry 1 (or 0), and the scale divided out."""
    largest = ops.stop_gradient(
        ops.max(ops.abs(vectors), axis=-1, keepdims=True)
    )
    scale = ops.where(largest == 0.0, ops.ones_like(largest), largest)
    return vectors / scale, scale


def unit_sphere(vectors: Tensor) -> Tensor:
    """Divides (..., size) by the Euclidean norm; a zero vector stays zero."""
    scaled, _ = _scaled(at_least_float32(vectors))
    squares = ops.sum(ops.square(scaled), axis=-1, keepdims=True)
    # The direction does not depend on the scale, nor does its gradient.
    return scaled / ops.sqrt(ops.where(squares == 0.0, 1.0, squares))


def unit_ball(vectors: Tensor) -> Tensor:
    """Projects (..., size) onto the unit ball: `x / max(1, |x|)`.

    The gradient is the identity inside the ball and `(g - y (y . g)) / |x|`
    outside, with `y` the projected vector.
    """
    vectors = at_least_float32(vectors)
    norm = vector_norm(vectors)
    return vectors / ops.where(norm > 1.0, norm, ops.ones_like(norm))


def check_normalization(normalization: str | None) -> str | None:
    """Returns `normalization`, or raises `ValueError` for an unknown one."""
    check_choice("l2", "ball", None, normalization=normalization)
    return normalization


def normalize(vectors: Tensor, normalization: str | None) -> Tensor:
    """Normalizes (..., size) to float32 or float64."""
    if normalization == "l2":
        return unit_sphere(vectors)
    if normalization == "ball":
        return unit_ball(vectors)
    return at_least_float32(vectors)
