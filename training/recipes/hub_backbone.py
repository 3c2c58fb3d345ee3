"""Backbones of keras-hub as networks from images to a feature map."""

import warnings
from typing import Any

import keras
import numpy as np

from keras_gsp._encoding import input_of
from keras_gsp.layers.patch_tokens import TokenGrid


def build_hub_network(
    preset: str, image_shape: tuple
) -> tuple[keras.Model, Any]:
    """Loads a preset of keras-hub and ends it at its features, a map.

    A model of images and texts gives its vision encoder. `image_shape` is the
    size of a preset for any size. Also returns a layer from pixels of 0 to 255
    to the preset's range.
    """
    import keras_hub as hub

    load = hub.models.Backbone.from_preset
    try:
        network = load(preset)
    except TypeError:
        # DINOv3 computes with the image's sides, and a preset may leave them
        # open.
        network = load(preset, image_shape=tuple(image_shape))
    network = getattr(network, "vision_encoder", network)
    shapes = [tuple(one.shape[1:]) for one in network.inputs]
    images = [one for one in shapes if len(one) == 3 and one[2] == 3]
    if len(images) != 1:
        raise ValueError(
            f"`backbone` must take one image. Received: the preset {preset}, "
            f"which takes {shapes}."
        )
    sides = [
        own or given for own, given in zip(images[0], image_shape, strict=True)
    ]
    inputs = given = keras.Input(sides, name="pixels")
    if isinstance(network.input, dict):
        given = dict.fromkeys(network.input, inputs)
    outputs = feature_part(network)(given)
    if len(outputs.shape) == 3:
        outputs = token_map(network, outputs, inputs)
    return keras.Model(inputs, outputs, name="hub"), _scaling(hub, preset)


def feature_part(network: keras.Model) -> keras.Model:
    """Cuts a backbone after its last layer with a map or tokens."""
    if len(network.outputs[0].shape) in (3, 4):
        return network
    for layer in reversed(network.layers[1:]):
        output = getattr(layer, "output", None)
        if len(getattr(output, "shape", ())) in (3, 4):
            return keras.Model(input_of(network), output, name="features")
    raise ValueError(
        "A backbone must have a layer that gives a feature map or tokens. "
        f"Received: {network.name}."
    )


def token_map(network: keras.Model, tokens: Any, inputs: Any) -> Any:
    """Arranges patches (batch, tokens, channels) as a map.

    The patch size gives rows and columns. Tokens before the patches are
    dropped; they must be those that the model states.
    """
    patch = getattr(network, "patch_size", None)
    if patch is None:
        raise ValueError(
            "A `backbone` that returns tokens must have a `patch_size`. "
            f"Received: {network.name}, which has none."
        )
    patch = (patch, patch) if isinstance(patch, int) else patch
    # Each stage but the first merges two by two patches.
    merged = 2 ** (len(getattr(network, "depths", (1,))) - 1)
    rows, columns = (
        side // (size * merged)
        for side, size in zip(inputs.shape[1:3], patch, strict=True)
    )
    # Of a blank image: symbolic shapes of some models are wrong.
    blank = np.zeros((1, *inputs.shape[1:]), "float32")
    found = keras.Model(inputs, tokens).predict(blank, verbose=0)
    count = found.shape[1]
    prefix_tokens = count - rows * columns
    stated = int(getattr(network, "use_class_token", max(prefix_tokens, 0)))
    if getattr(network, "num_register_tokens", None) is not None:
        stated = 1 + network.num_register_tokens
    if prefix_tokens != stated:
        raise ValueError(
            "The tokens of `backbone` must be its class and register "
            f"tokens and its patches. Received: {network.name} with {count} "
            f"tokens, {rows} x {columns} patches and {stated} before them."
        )
    return TokenGrid(
        (rows, columns), prefix_tokens=prefix_tokens, name="patches"
    )(tokens)


def _scaling(hub, preset):
    """Scales pixels to the preset's range, by default to [-1, 1]."""
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
