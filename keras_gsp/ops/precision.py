"""The dtype that distances, logarithms and solvers run in."""

import keras
from keras import ops

from keras_gsp.ops.tensor import Tensor


def at_least_float32(tensor: Tensor) -> Tensor:
    """Returns the tensor in float32, or unchanged when it is float64.

    Half precision and integers become float32: costs, logarithms and the
    transport solver lose their meaning in eight bits of mantissa.

    Args:
        tensor: tensor or array, any shape.

    Returns:
        Tensor of the same shape, float32 or float64.
    """
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
    """Returns the mean in the tensor's own dtype.

    `keras.ops.mean` on JAX averages float64 in float32 (Keras 3.15).

    Args:
        tensor: float32 or float64, any shape.
        axis: int, or `None` for all axes.

    Returns:
        Tensor without `axis`, in the same dtype.
    """
    count = ops.size(tensor) if axis is None else ops.shape(tensor)[axis]
    return ops.sum(tensor, axis=axis) / ops.cast(count, tensor.dtype)
