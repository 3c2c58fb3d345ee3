"""Depthwise convolutions as sums of products, which XLA compiles well."""

from functools import partial
from typing import Any

import keras
from keras import ops

from keras_gsp._compat import layers_at_any_depth


def use_products(network: Any) -> None:
    """Makes each depthwise convolution a sum of k x k products.

    For JAX on a CPU, where XLA's gradient of the convolution takes most of a
    step of MobileNetV2. Weights and files stay as they are. Dilated
    convolutions, and several results a channel, are left.
    """
    for layer in layers_at_any_depth(network):
        if not isinstance(layer, keras.layers.DepthwiseConv2D):
            continue
        if layer.dilation_rate == (1, 1) and layer.depth_multiplier == 1:
            layer.call = partial(_convolved, layer)


def _convolved(layer, inputs):
    """Calls `layer` on images (batch, height, width, channels)."""
    sides, step = layer.kernel_size, layer.strides[0]
    if layer.padding == "same":
        # As TensorFlow pads: what is odd comes after.
        whole = [
            max(k - step if n % step == 0 else k - n % step, 0)
            for k, n in zip(sides, inputs.shape[1:3], strict=True)
        ]
        before = [(n // 2, n - n // 2) for n in whole]
        inputs = ops.pad(inputs, [(0, 0), *before, (0, 0)])
    rows, columns = (
        [slice(i, n - k + i + 1, step) for i in range(k)]
        for k, n in zip(sides, inputs.shape[1:3], strict=True)
    )
    kernel = ops.cast(layer.kernel, inputs.dtype)
    found = sum(
        inputs[:, down, across] * kernel[i, j, :, 0]
        for i, down in enumerate(rows)
        for j, across in enumerate(columns)
    )
    if layer.use_bias:
        found = found + ops.cast(layer.bias, inputs.dtype)
    return layer.activation(found)
