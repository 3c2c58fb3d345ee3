"""BN-Inception: Inception with batch normalization, without its classifier."""

from pathlib import Path
from typing import Any

import keras
import numpy as np

# 1x1, 3x3 reduce, 3x3, double reduce, double, pool projection. A block
# without 1x1 and projection halves the map.
_BLOCKS = {
    "3a": (64, 64, 64, 64, 96, 32),
    "3b": (64, 64, 96, 64, 96, 64),
    "3c": (0, 128, 160, 64, 96, 0),
    "4a": (224, 64, 96, 96, 128, 128),
    "4b": (192, 96, 128, 96, 128, 128),
    "4c": (160, 128, 160, 128, 160, 128),
    "4d": (96, 128, 192, 160, 192, 128),
    "4e": (0, 128, 192, 192, 256, 0),
    "5a": (352, 192, 320, 160, 224, 128),
    "5b": (352, 192, 320, 192, 224, 128),
}
_BGR_MEAN = (104.0, 117.0, 128.0)


def bn_inception(
    input_shape: tuple = (None, None, 3), *, name: str = "bn_inception"
) -> keras.Model:
    """Builds the backbone of the papers: an image to a 1,024-channel map.

    All image sizes are accepted. Preprocessing is part of the model, as the
    published ImageNet weights expect it: channels reversed to blue, green,
    red, and the mean (104, 117, 128) subtracted. Weights start at random;
    `load_bn_inception_weights` loads those of the widely used PyTorch file.

    Returns:
        `keras.Model` from (batch, height, width, 3), red, green and blue in
        [0, 255], to (batch, about height / 32, about width / 32, 1024).

    Example:

    ```python
    backbone = gsp.models.bn_inception((64, 64, 3))
    assert backbone.output_shape == (None, 2, 2, 1024)
    ```

    Reference:
        Ioffe and Szegedy, Batch Normalization (ICML 2015), Figure 5; layer
        names and sizes as in the Caffe model of the PyTorch weights.
    """
    images = keras.Input(input_shape, name="image")
    offset = [-mean for mean in reversed(_BGR_MEAN)]
    x = keras.layers.Rescaling(1.0, offset=offset, name="minus_mean")(images)
    x = keras.ops.flip(x, axis=-1)
    x = _convolution(x, "conv1_7x7_s2", 64, 7, strides=2)
    x = _halve(x, "pool1_3x3_s2")
    x = _convolution(x, "conv2_3x3_reduce", 64, 1)
    x = _convolution(x, "conv2_3x3", 192, 3)
    x = _halve(x, "pool2_3x3_s2")
    for block, sizes in _BLOCKS.items():
        x = _inception(x, f"inception_{block}", *sizes)
    return keras.Model(images, x, name=name)


def _inception(x, name, one, reduce, three, double_reduce, double, project):
    strides = 1 if one else 2
    paths = [_convolution(x, f"{name}_1x1", one, 1)] if one else []
    y = _convolution(x, f"{name}_3x3_reduce", reduce, 1)
    paths.append(_convolution(y, f"{name}_3x3", three, 3, strides))
    y = _convolution(x, f"{name}_double_3x3_reduce", double_reduce, 1)
    y = _convolution(y, f"{name}_double_3x3_1", double, 3)
    paths.append(_convolution(y, f"{name}_double_3x3_2", double, 3, strides))
    if strides == 2:
        pool = keras.layers.MaxPooling2D(3, 2, "same", name=f"{name}_pool")
        paths.append(pool(x))
    else:
        # The original's average includes its zero padding, unlike "same".
        y = keras.layers.ZeroPadding2D(1, name=f"{name}_pool_pad")(x)
        pooling = keras.layers.AveragePooling2D
        if name == "inception_5b":
            pooling = keras.layers.MaxPooling2D
        y = pooling(3, 1, name=f"{name}_pool")(y)
        paths.append(_convolution(y, f"{name}_pool_proj", project, 1))
    return keras.layers.Concatenate(name=f"{name}_output")(paths)


def _convolution(x, name, filters, size, strides=1):
    # Padded here: Keras's "same" pads strided convolutions on one side.
    if size > 1:
        x = keras.layers.ZeroPadding2D(size // 2, name=f"{name}_pad")(x)
    x = keras.layers.Conv2D(filters, size, strides, name=name)(x)
    x = keras.layers.BatchNormalization(
        momentum=0.9, epsilon=1e-5, name=f"{name}_bn"
    )(x)
    return keras.layers.ReLU(name=f"{name}_relu")(x)


def _halve(x, name):
    # The original rounds sizes up. After a ReLU, one more row and column of
    # zeros does the same.
    x = keras.layers.ZeroPadding2D(((0, 1), (0, 1)), name=f"{name}_pad")(x)
    return keras.layers.MaxPooling2D(3, 2, name=name)(x)


_IGNORED = ("fc.", "last_linear.", "fc_action.")


def load_bn_inception_weights(model: keras.Model, state: Any) -> keras.Model:
    """Loads weights in PyTorch's layout into a `bn_inception`.

    Every convolution and batch normalization of the model must be there and
    fit; the classifier's weights are ignored.

    Args:
        model: a model that `keras_gsp.models.bn_inception` built.
        state: the state dict (name -> array or tensor), as
            `torch.load(file, weights_only=True)` gives it, or an `.npz` file
            of it, as `numpy.savez(file, **state)` writes it.

    Raises:
        ValueError: missing or unknown names, or other shapes.
        FileNotFoundError: no such file.

    Example:

    ```python
    from keras_gsp.models.backbones import bn_inception

    backbone = gsp.models.bn_inception((32, 32, 3))
    state = bn_inception.bn_inception_state(backbone)
    gsp.models.load_bn_inception_weights(backbone, state)
    ```
    """
    if isinstance(state, (str, Path)):
        with np.load(state, allow_pickle=False) as arrays:
            state = dict(arrays)
    state = {
        name: np.asarray(value)
        for name, value in state.items()
        if not name.startswith(_IGNORED)
        and not name.endswith("num_batches_tracked")
    }
    wanted = bn_inception_state(model).keys()
    missing = sorted(wanted - state.keys())
    unknown = sorted(state.keys() - wanted)
    if missing or unknown:
        raise ValueError(
            "`state` must hold exactly BN-Inception's weights. Received: "
            f"{len(missing)} missing {missing[:3]}, {len(unknown)} unknown "
            f"{unknown[:3]}."
        )
    for layer in _layers(model):
        layer.set_weights(_converted(layer, state))
    return model


def bn_inception_state(model: keras.Model) -> dict[str, np.ndarray]:
    """Returns the weights as PyTorch names and shapes them."""
    state = {}
    for layer in _layers(model):
        for name, value in zip(_names(layer), layer.get_weights(), strict=True):
            if value.ndim == 4:
                value = value.transpose(3, 2, 0, 1)
            state[f"{layer.name}.{name}"] = value
    return state


def _layers(model):
    weighted = keras.layers.Conv2D, keras.layers.BatchNormalization
    return [layer for layer in model.layers if isinstance(layer, weighted)]


def _names(layer):
    # In the order of `get_weights`.
    if isinstance(layer, keras.layers.Conv2D):
        return "weight", "bias"
    return "weight", "bias", "running_mean", "running_var"


def _converted(layer, state):
    weights = []
    for name in _names(layer):
        value = state[f"{layer.name}.{name}"]
        if value.ndim == 4:
            value = value.transpose(2, 3, 1, 0)
        elif value.ndim == 2 and 1 in value.shape:
            value = value.reshape(-1)  # (1, channels) in the oldest file
        weights.append(value)
    return weights
