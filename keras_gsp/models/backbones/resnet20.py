"""ResNet-20 for small images, versions 1 and 2."""

import keras

_STAGES = (16, 32, 64)
# Version 2: channels inside and at the end of each bottleneck block.
_BOTTLENECKS = ((16, 64), (64, 128), (128, 256))


def resnet20(
    input_shape: tuple = (None, None, 3),
    *,
    version: int = 1,
    name: str = "resnet20",
) -> keras.Model:
    """Builds ResNet-20 without its classifier: an image to a feature map.

    For images of about 32 pixels; the map is 1/4 of their sides.
    Preprocessing is part of the model: pixels are scaled to [-1, 1]. Where
    the width grows, the shortcut is a 1x1 convolution (option B of the
    paper; its CIFAR experiments pad with zeros instead).

    Args:
        input_shape: (height, width, channels), without the batch; sides may
            be None.
        version: 1: three blocks of two convolutions a stage, 64 channels at
            the end; 2: two bottleneck blocks a stage with normalization and
            ReLU before each convolution, 256 channels at the end.
        name: name of the model.

    Returns:
        `keras.Model` from (batch, height, width, channels) in [0, 255] to
        (batch, height / 4, width / 4, 64), or 256 channels in version 2.

    Raises:
        ValueError: another version.

    Example:

    ```python
    import keras_gsp as gsp

    backbone = gsp.models.resnet20((32, 32, 3), version=2)
    assert backbone.output_shape == (None, 8, 8, 256)
    ```

    Reference:
        He et al., Deep Residual Learning (CVPR 2016), section 4.2, and
        Identity Mappings in Deep Residual Networks (ECCV 2016).
    """
    if version not in (1, 2):
        raise ValueError(
            f"`version` must be 1 or 2. Received: version={version}."
        )
    images = keras.Input(input_shape, name="image")
    x = keras.layers.Rescaling(1 / 127.5, offset=-1.0)(images)
    x = _convolution(x, _STAGES[0])
    if version == 1:
        x = _activated(x)
        for stage, filters in enumerate(_STAGES):
            for position in range(3):
                x = _block(x, filters, 2 if stage and not position else 1)
    else:
        for stage, (inside, outside) in enumerate(_BOTTLENECKS):
            for position in range(2):
                strides = 2 if stage and not position else 1
                x = _bottleneck(x, inside, outside, strides)
        x = _activated(x)
    return keras.Model(images, x, name=name)


def _block(x, filters, strides):
    shortcut = x
    if strides > 1:
        shortcut = _normalized(_convolution(x, filters, 1, strides))
    x = _activated(_convolution(x, filters, 3, strides))
    x = _normalized(_convolution(x, filters))
    return keras.layers.ReLU()(keras.layers.Add()([x, shortcut]))


def _bottleneck(x, inside, outside, strides):
    activated = _activated(x)
    shortcut = x
    if x.shape[-1] != outside:
        shortcut = _convolution(activated, outside, 1, strides)
    x = _convolution(activated, inside, 1, strides)
    x = _convolution(_activated(x), inside)
    x = _convolution(_activated(x), outside, 1)
    return keras.layers.Add()([x, shortcut])


def _convolution(x, filters, size=3, strides=1):
    return keras.layers.Conv2D(
        filters,
        size,
        strides,
        padding="same",
        use_bias=False,
        kernel_initializer="he_normal",
    )(x)


def _normalized(x):
    return keras.layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(x)


def _activated(x):
    return keras.layers.ReLU()(_normalized(x))
