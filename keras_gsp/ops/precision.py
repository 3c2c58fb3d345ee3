"""Precision of products, distances, logarithms and solvers.

An accelerator rounds the operands of a float32 product to the ten bits of
mantissa of TF32, a relative error of 3e-4, unless it is asked not to.
"""

from functools import cache

import keras
from keras import ops

from keras_gsp._tensor import Tensor


def full_matmul(left: Tensor, right: Tensor) -> Tensor:
    """Matrix product in full precision on every backend and device.

    For what decides distances, similarities, selections and solutions. The
    gradient has the same precision. On JAX each product carries its precision;
    elsewhere, where a GPU would round, the operands are split in two.
    """
    if keras.backend.backend() == "jax":
        from jax import lax, numpy

        left, right = map(ops.convert_to_tensor, (left, right))
        return numpy.matmul(left, right, precision=lax.Precision.HIGHEST)
    left, right = map(_read, (left, right))
    dtypes = {keras.backend.standardize_dtype(x.dtype) for x in (left, right)}
    if keras.backend.backend() == "torch":
        import torch

        device = left.device.type
        if device != "meta" and torch.is_autocast_enabled(device):
            with torch.autocast(device, enabled=False):
                return full_matmul(left, right)
        if dtypes == {"float64"}:
            # Keras rounds the result to float32 there.
            return left @ right
    if dtypes != {"float32"} or not rounds_products():
        return ops.matmul(left, right)
    return _split_matmul(left, right)


def _split_matmul(one, other):
    """Three products of rounded operands, and the same for the gradient.

    x = h + l with h the upper bits: h h' + h l' + l h' misses l l', 2^-22 of
    the product.
    """

    @ops.custom_gradient
    def product(one, other):
        (high, low), (other_high, other_low) = map(_halves, (one, other))
        result = ops.matmul(high, other_high) + (
            ops.matmul(high, other_low) + ops.matmul(low, other_high)
        )

        def gradient(*inputs, upstream=None):
            if upstream is None:
                (upstream,) = inputs
            turned = ops.swapaxes(other, -1, -2)
            of_one = _split_matmul(upstream, turned)
            of_other = _split_matmul(ops.swapaxes(one, -1, -2), upstream)
            return _summed_to(of_one, one), _summed_to(of_other, other)

        return result, gradient

    return product(one, other)


def _read(tensor):
    """The tensor, or the value of a variable: no gradient passes by name."""
    tensor = ops.convert_to_tensor(tensor)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.convert_to_tensor(tensor)
    return tensor


def _halves(tensor):
    """The ten upper bits of the mantissas, rounded, and the rest, exactly."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        bits = tf.bitcast(tensor, "int32")
        upper = ops.bitwise_and(bits + 0x1000, -0x2000)
        high = tf.bitcast(upper, "float32")
    else:
        import torch

        bits = tensor.contiguous().view(torch.int32)
        upper = ops.bitwise_and(bits + 0x1000, -0x2000)
        high = upper.view(torch.float32)
    return high, tensor - high


def _summed_to(gradient, tensor):
    """Sums over the leading axes along which a tensor was broadcast."""
    extra = tuple(range(len(gradient.shape) - len(tensor.shape)))
    if extra:
        gradient = ops.sum(gradient, axis=extra)
    axes = [
        axis
        for axis, size in enumerate(tensor.shape[:-2])
        if size == 1 and gradient.shape[axis] != 1
    ]
    return ops.sum(gradient, axis=axes, keepdims=True) if axes else gradient


def rounds_products() -> bool:
    """Whether a GPU would round the operands of a float32 product."""
    if keras.backend.backend() == "torch":
        import torch

        matmul = torch.backends.cuda.matmul
        # From PyTorch 2.9; the older name raises where this one was set.
        precision = getattr(matmul, "fp32_precision", None)
        if precision is None:
            precision = "tf32" if matmul.allow_tf32 else "ieee"
        return torch.cuda.is_available() and precision == "tf32"
    import tensorflow as tf

    is_on = tf.config.experimental.tensor_float_32_execution_enabled
    return _has_gpu() and is_on()


@cache
def _has_gpu():
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


def at_least_float32(tensor: Tensor) -> Tensor:
    """Returns the tensor in float32, or unchanged when it is float64."""
    tensor = ops.convert_to_tensor(tensor)
    if keras.backend.standardize_dtype(tensor.dtype) == "float64":
        return tensor
    return ops.cast(tensor, "float32")


def larger(one: Tensor, other: Tensor | float) -> Tensor:
    """The larger of a tensor and another or a number, in the tensor's dtype.

    `keras.ops.maximum` rounds float64 to float32 on PyTorch.
    """
    if keras.backend.backend() == "torch":
        other = ops.cast(other, one.dtype)
        return one.maximum(other.to(one.device))
    return ops.maximum(one, other)


def smaller(one: Tensor, other: Tensor | float) -> Tensor:
    """As `larger`, the smaller of both."""
    return -larger(-one, -other)


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
    count = larger(ops.cast(count, tensor.dtype), 1.0)
    return ops.sum(tensor, axis=axis) / count
