"""Backbones of keras-hub as networks from images to a feature map."""

import importlib.util
import warnings
from typing import Any

import keras
import numpy as np

import keras_gsp as gsp
from keras_gsp.embeddings.model_input import input_of
from training.recipes.recipe import HUB_PREFIX


def check_installed(backbone: str) -> None:
    """Raises `ValueError` where keras-hub is missing.

    Args:
        backbone: The recipe's backbone.
    """
    if importlib.util.find_spec("keras_hub") is None:
        raise ValueError(
            '`backbone` must be one that is installed: pip install "keras-gsp'
            f'[hub]". Received: backbone={backbone}.'
        )


def build_hub_network(
    preset: str, image_shape: tuple
) -> tuple[keras.Model, Any]:
    """Loads a preset of keras-hub and ends it at its features.

    A model of images and texts gives its vision encoder; a model with a
    pooling ends before it; class and register tokens are dropped and the
    patches arranged as a map.

    Args:
        preset: name, handle or folder, as `keras_hub` takes it.
        image_shape: (height, width, 3) of the images, which is also the size
            of a preset for any size.

    Returns:
        A model from (batch, height, width, 3), in the size and range of the
        preset, to (batch, rows, columns, channels); and a layer from pixels
        of 0 to 255 to that range.

    Raises:
        ValueError: keras-hub is missing, the preset is no image model, or it
            does not define how its tokens make a map.
    """
    check_installed(HUB_PREFIX + preset)
    import keras_hub as hub

    network = _loaded(hub, preset, image_shape)
    network = getattr(network, "vision_encoder", network)
    own_shape = _image_shape(network, preset)
    sides = [
        own or given for own, given in zip(own_shape, image_shape, strict=True)
    ]
    inputs = keras.Input(sides, name="pixels")
    outputs = feature_part(network)(_as_given(network, inputs))
    if len(outputs.shape) == 3:
        outputs = token_map(network, outputs, inputs)
    return keras.Model(inputs, outputs, name="hub"), _scaling(hub, preset)


def feature_part(network: keras.Model) -> keras.Model:
    """The part of a backbone that ends in a map or in tokens.

    Args:
        network: built model with one output.

    Raises:
        ValueError: no layer returns features.
    """
    if len(network.outputs[0].shape) in (3, 4):
        return network
    for layer in reversed(network.layers[1:]):
        output = getattr(layer, "output", None)
        if len(getattr(output, "shape", ())) in (3, 4):
            return keras.Model(input_of(network), output, name="features")
    raise ValueError(
        "A backbone must have a layer that gives a feature map or tokens. "
        f"Received: {network.name} with outputs of shape "
        f"{tuple(network.outputs[0].shape)}."
    )


def token_map(network: keras.Model, tokens: Any, inputs: Any) -> Any:
    """Arranges patches as a map; leading tokens are dropped.

    Args:
        network: the backbone, with a `patch_size`, and `num_register_tokens`
            or `use_class_token` where it has leading tokens.
        tokens: its outputs, (batch, tokens, channels).
        inputs: its inputs, (batch, height, width, 3).

    Raises:
        ValueError: no patch size, or another number of tokens than stated.
    """
    grid = _grid_shape(network, inputs.shape[1:3])
    counted = _count_tokens(tokens, inputs)
    prefix_tokens = counted - grid[0] * grid[1]
    stated = _stated_prefix(network, max(prefix_tokens, 0))
    if prefix_tokens != stated:
        raise ValueError(
            "The tokens of `backbone` must be its class and register "
            f"tokens and its patches. Received: {network.name} with {counted} "
            f"tokens, {grid[0]} x {grid[1]} patches and {stated} before them."
        )
    return gsp.layers.TokenGrid(
        grid, prefix_tokens=prefix_tokens, name="patches"
    )(tokens)


def _loaded(hub, preset, image_shape):
    """A preset's backbone, of the images' size where it needs one."""
    load = hub.models.Backbone.from_preset
    try:
        return load(preset)
    except TypeError:
        # DINOv3 computes with the image's sides, and a preset may leave them
        # open.
        return load(preset, image_shape=tuple(image_shape))


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


def _grid_shape(network, sides):
    """Rows and columns of patches, by the model's patch size.

    Their number is ambiguous: nine tokens are a grid of 3 x 3, or one of 2 x 2
    after a class token and four registers.
    """
    patch = getattr(network, "patch_size", None)
    if patch is None:
        raise ValueError(
            "A `backbone` that returns tokens must have a `patch_size`. "
            f"Received: {network.name}, which has none. Use one that returns "
            "a feature map, or arrange its tokens yourself: "
            "keras_gsp.models.build_encoder(..., prefix_tokens=..., "
            "grid_shape=...)."
        )
    if isinstance(patch, int):
        patch = patch, patch
    # Each stage but the first merges two by two patches.
    merged = 2 ** (len(getattr(network, "depths", (1,))) - 1)
    return tuple(
        side // (size * merged) for side, size in zip(sides, patch, strict=True)
    )


def _count_tokens(tokens, inputs):
    """The number of tokens of a blank image.

    Symbolic shapes of some models are wrong.
    """
    blank = np.zeros((1, *inputs.shape[1:]), "float32")
    return keras.Model(inputs, tokens).predict(blank, verbose=0).shape[1]


def _stated_prefix(network, found):
    """Leading tokens by the model's attributes; those found without them."""
    registers = getattr(network, "num_register_tokens", None)
    if registers is not None:
        return 1 + registers
    return int(getattr(network, "use_class_token", found))


def _scaling(hub, preset):
    """The preset's range of pixels; [-1, 1] with a warning without one."""
    try:
        converter = hub.layers.ImageConverter.from_preset(preset)
    except (ValueError, FileNotFoundError):
        warnings.warn(
            f"The preset {preset} does not state the range of pixels that it "
            "was trained on: they are scaled to [-1, 1].",
            stacklevel=2,
        )
        return keras.layers.Rescaling(1 / 127.5, -1.0)
    scale = 1.0 if converter.scale is None else converter.scale
    offset = 0.0 if converter.offset is None else converter.offset
    return keras.layers.Rescaling(scale, offset)
