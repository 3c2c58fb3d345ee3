"""Precision of distances, logarithms, solvers and matrix products."""

import contextlib
from collections.abc import Iterator

import keras
from keras import ops

from keras_gsp.ops.tensor import Tensor


@contextlib.contextmanager
def full_precision_matmul() -> Iterator[None]:
    """Turns off reduced-precision float32 products inside a `with` block.

    Recent GPUs round the factors of a float32 product to ten bits of mantissa
    (TensorFloat-32) by default. That can change the order of near neighbors.
    The former setting is restored afterwards; it belongs to the process on
    TensorFlow and to the thread on JAX.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        former = tf.config.experimental.tensor_float_32_execution_enabled()
        tf.config.experimental.enable_tensor_float_32_execution(False)
        try:
            yield
        finally:
            tf.config.experimental.enable_tensor_float_32_execution(former)
    elif keras.backend.backend() == "jax":
        import jax

        with jax.default_matmul_precision("highest"):
            yield
    else:
        yield


def at_least_float32(tensor: Tensor) -> Tensor:
    """Returns the tensor in float32, or unchanged when it is float64."""
    tensor = ops.convert_to_tensor(tensor)
    if keras.backend.standardize_dtype(tensor.dtype) == "float64":
        return tensor
    return ops.cast(tensor, "float32")


def unit_roundoff(tensor: Tensor) -> float:
    """Returns the machine epsilon of a float32 or float64 tensor."""
    dtype = keras.backend.standardize_dtype(tensor.dtype)
    return 2.0**-52 if dtype == "float64" else 2.0**-23


def smallest_normal(tensor: Tensor) -> float:
    """Returns the smallest normal number of a float32 or float64 tensor."""
    dtype = keras.backend.standardize_dtype(tensor.dtype)
    return 2.0**-1022 if dtype == "float64" else 2.0**-126


def exact_mean(tensor: Tensor, axis: int | None = None) -> Tensor:
    """Returns the mean in the tensor's own dtype; 0 over an empty axis.

    `keras.ops.mean` on JAX averages float64 in float32 (Keras 3.15).
    """
    count = ops.size(tensor) if axis is None else ops.shape(tensor)[axis]
    count = ops.maximum(ops.cast(count, tensor.dtype), 1.0)
    return ops.sum(tensor, axis=axis) / count
