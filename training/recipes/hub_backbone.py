"""Backbones of keras-hub, whatever they are, as uint8 images to a map."""

import importlib.util
import math
from typing import Any

import keras
import numpy as np

import keras_gsp as gsp
from training.recipes.recipe import HUB_PREFIX


def check_installed(backbone: str) -> None:
    """Raises `ValueError` where keras-hub is missing.

    Args:
        backbone: What a recipe asks for.
    """
    if importlib.util.find_spec("keras_hub") is None:
        raise ValueError(
            '`backbone` must be one that is installed: pip install "keras-gsp'
            f'[hub]". Received: backbone={backbone}.'
        )


def build_hub_network(preset: str) -> tuple[keras.Model, Any]:
    """Loads a preset of keras-hub and ends it at its features.

    Of a model of images and texts the vision encoder is taken; a model that
    pools by itself is tapped before; class and register tokens are dropped
    and the patches laid out as a map.

    Args:
        preset: name, handle or folder, as `keras_hub` takes it.

    Returns:
        A model from (batch, height, width, 3), in the size and range that
        the preset wants, to (batch, rows, columns, channels); and a layer
        from pixels of 0 to 255 to that range.

    Raises:
        ValueError: keras-hub is missing, or the preset is no image model.
    """
    check_installed(HUB_PREFIX + preset)
    import keras_hub as hub

    network = hub.models.Backbone.from_preset(preset)
    network = getattr(network, "vision_encoder", network)
    inputs = keras.Input(_image_shape(network, preset), name="pixels")
    outputs = feature_part(network)(_as_given(network, inputs))
    if len(outputs.shape) == 3:
        outputs = _as_map(network, outputs, inputs)
    return keras.Model(inputs, outputs, name="hub"), _scaling(hub, preset)


def feature_part(network: keras.Model) -> keras.Model:
    """The part of a backbone that ends in a map or in tokens.

    Args:
        network: built model with one output.

    Raises:
        ValueError: no layer of it gives features.
    """
    if len(network.outputs[0].shape) in (3, 4):
        return network
    for layer in reversed(network.layers[1:]):
        output = getattr(layer, "output", None)
        if len(getattr(output, "shape", ())) in (3, 4):
            return keras.Model(network.inputs, output, name="features")
    raise ValueError(
        "A backbone must have a layer that gives a feature map or tokens. "
        f"Received: {network.name} with outputs of shape "
        f"{tuple(network.outputs[0].shape)}."
    )


def _image_shape(network, preset):
    images = [
        x.shape for x in network.inputs if len(x.shape) == 4 and x.shape[3] == 3
    ]
    if len(images) != 1:
        raise ValueError(
            "`backbone` must take one image. Received: the preset "
            f"{preset}, which takes "
            f"{[tuple(x.shape) for x in network.inputs]}."
        )
    return tuple(images[0][1:])


def _as_given(network, images):
    if isinstance(network.input, dict):
        return dict.fromkeys(network.input, images)
    return images


def _as_map(network, tokens, inputs):
    """Patches as a map; what stands before them is dropped.

    The tokens are counted on a blank image: what a model says beforehand is
    not always what it gives.
    """
    height, width = inputs.shape[1:3]
    blank = np.zeros((1, height, width, 3), "float32")
    counted = keras.Model(inputs, tokens).predict(blank, verbose=0).shape[1]
    # The largest grid of the image's proportions; fewer tokens are left over
    # than another row would need.
    part = math.gcd(height, width)
    ratio = height // part, width // part
    times = math.isqrt(counted // (ratio[0] * ratio[1]))
    grid = ratio[0] * times, ratio[1] * times
    prefix_tokens = counted - grid[0] * grid[1]
    return gsp.layers.TokenGrid(
        grid, prefix_tokens=prefix_tokens, name="patches"
    )(tokens)


def _scaling(hub, preset):
    """The preset's own range of pixels; -1 to 1 where it says none."""
    try:
        converter = hub.layers.ImageConverter.from_preset(preset)
    except (ValueError, FileNotFoundError):
        return keras.layers.Rescaling(1 / 127.5, -1.0)
    scale = 1.0 if converter.scale is None else converter.scale
    offset = 0.0 if converter.offset is None else converter.offset
    return keras.layers.Rescaling(scale, offset)
