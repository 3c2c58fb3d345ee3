"""Precision of distances, logarithms and solvers."""

import keras
from keras import ops

from keras_gsp.ops.tensor import Tensor


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
