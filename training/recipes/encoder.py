"""The encoder of a recipe: backbone, pooling, histogram, normalization."""

import warnings
from functools import partial
from typing import Any

import h5py
import keras

import keras_gsp as gsp
from keras_gsp._compat import layers_at_any_depth
from keras_gsp._encoding import input_of
from training.recipes.batches import preprocessing_of
from training.recipes.choices import DIVIDED, FEW, is_gsp, make_pooling
from training.recipes.depthwise import use_products
from training.recipes.glyph_network import (
    CHARACTERS,
    PIXELS,
    character_weights,
    glyph_network,
)
from training.recipes.hub_backbone import build_hub_network
from training.recipes.recipe import Recipe

# Of MobileNetV2's weights for ImageNet.
WIDTHS = 0.35, 0.5, 0.75, 1.0, 1.3, 1.4
# Minus the mean of ImageNet: blue, green, red.
RESNET_OFFSET = (-103.939, -116.779, -123.68)
# Share of the mean variance: 0.3 gains on birds, characters and emoji, see
# docs/results/whitening.md; each has a better one of its own.
SHRINKAGE = 0.3


def build_recipe_encoder(recipe: Recipe, image_shape: tuple) -> Any:
    """Builds the encoder of a recipe, untrained, for uint8 images.

    Without steps it pools the backbone's own features, perhaps whitened.
    """
    backbone = build_backbone(recipe, image_shape)
    if recipe.steps:
        return build_head(recipe, backbone)
    raw = gsp.models.build_encoder(
        backbone,
        embedding_size=None,
        pooling=build_pooling(recipe.with_(regularizer="none")),
        preprocessing=preprocessing_of(recipe),
    )
    if recipe.projection_start == "random":
        return raw
    whitening = gsp.layers.Whitening(
        recipe.embedding_size,
        shrinkage=SHRINKAGE,
        normalization=recipe.normalization,
        name="whitening",
    )
    return keras.Model(input_of(raw), whitening(raw.output), name="encoder")


def build_head(recipe: Recipe, backbone: keras.Model) -> keras.Model:
    """Puts projection, pooling and normalization of a recipe on a backbone."""
    histogram = None
    if recipe.regularizer != "none" and not is_gsp(recipe.pooling):
        histogram = gsp.layers.PrototypeHistogram(
            recipe.num_prototypes, name="histogram"
        )
    return gsp.models.build_encoder(
        backbone,
        embedding_size=recipe.embedding_size,
        pooling=build_pooling(recipe),
        normalization=recipe.normalization,
        histogram=histogram,
        preprocessing=preprocessing_of(recipe),
        lora_rank=recipe.lora_rank,
    )


def build_pooling(recipe: Recipe) -> keras.layers.Layer:
    """Returns the pooling layer, with GSP's histogram for a regularizer."""
    word = recipe.pooling
    chosen = dict(recipe.pooling_arguments)
    if is_gsp(word):
        shared = "num_prototypes", "transport_ratio", "inverse_temperature"
        chosen |= {name: getattr(recipe, name) for name in shared}
        chosen["return_histogram"] = recipe.regularizer != "none"
    if word in DIVIDED:
        size = max(1, recipe.embedding_size // FEW)
        chosen = {"projection_size": size} | chosen
    return make_pooling(word, name="pooling", **chosen)


def build_backbone(recipe: Recipe, image_shape: tuple) -> Any:
    """Returns the model from uint8 images, or cached features, to a map."""
    if recipe.cache_features:
        features = keras.Input(image_shape, name="features")
        return keras.Model(features, features, name="cached_backbone")
    images = keras.Input(image_shape, dtype="uint8", name="image")
    pixels = keras.layers.Rescaling(1.0, name="to_float")(images)
    network, pixels = _network(recipe, image_shape, pixels)
    if recipe.frozen == "all":
        network.trainable = False
    if recipe.frozen == "batch-norm":
        for layer in layers_at_any_depth(network):
            if isinstance(layer, keras.layers.BatchNormalization):
                layer.trainable = False
    return keras.Model(images, network(pixels), name="backbone")


def _network(recipe, image_shape, pixels):
    """Returns the network with its weights, and pixels in its range."""
    weights = recipe.backbone_weights
    name, _, width = recipe.backbone.partition("@")
    if recipe.hub_preset:
        network, scaling = build_hub_network(recipe.hub_preset, image_shape)
        side = network.input.shape[1:3]
        if side != tuple(image_shape[:2]):
            pixels = keras.layers.Resizing(*side, name="to_preset")(pixels)
        return _filled(network, weights), scaling(pixels)
    if name == "bn-inception":
        network = gsp.models.bn_inception(image_shape)
        if weights is not None:
            gsp.models.load_bn_inception_weights(network, weights)
        return network, pixels
    build: Any
    if name == "mobilenet-v2":
        alpha = float(width) if width else width_of(weights)
        build = partial(keras.applications.MobileNetV2, alpha=alpha)
        network = _application(build, image_shape, weights)
        if keras.backend.backend() == "jax":
            use_products(network)
        scaling = keras.layers.Rescaling(1 / 127.5, -1.0)
        return network, scaling(pixels)
    if name == "resnet50":
        build = keras.applications.ResNet50
        scaling = keras.layers.Rescaling(1.0, RESNET_OFFSET)
        pixels = scaling(keras.ops.flip(pixels, axis=-1))
        return _application(build, image_shape, weights), pixels
    if weights == CHARACTERS:
        weights = character_weights(name)
    network = _filled(glyph_network(image_shape, name), weights)
    return network, keras.layers.Rescaling(**PIXELS)(pixels)


def width_of(weights: str | None) -> float:
    """Returns the factor on MobileNetV2's channels that a weights file has.

    Its last convolution takes 320 channels times this factor to the most.
    """
    if weights in (None, "imagenet"):
        return 1.0
    shapes = []

    def visit(name, entry):
        if len(getattr(entry, "shape", ())) == 4:
            shapes.append(entry.shape)

    try:
        with h5py.File(weights) as file:
            file.visititems(visit)
    except OSError:  # Loading the file says what is wrong with it.
        return 1.0
    channels = max(shapes, key=lambda shape: shape[-1], default=(0, 0, 320))[2]
    return min(WIDTHS, key=lambda width: abs(320 * width - channels))


def fetch_imagenet_weights(recipe: Recipe) -> None:
    """Downloads the ImageNet weights of a backbone, if necessary."""
    if recipe.backbone.partition("@")[0] not in ("mobilenet-v2", "resnet50"):
        raise ValueError(
            "`backbone_weights` must name a file with backbone="
            f"{recipe.backbone}: Keras has ImageNet weights for mobilenet-v2 "
            "and resnet50. Received: backbone_weights=imagenet."
        )
    side = recipe.crop_size or 224
    _network(recipe, (side, side, 3), keras.Input((side, side, 3)))


def _application(build, image_shape, weights):
    build = partial(build, input_shape=image_shape, include_top=False)
    if weights != "imagenet":
        return _filled(build(weights=None), weights)
    try:
        return build()
    except Exception as error:
        # Keras raises a plain `Exception` for a failed download.
        if "URL fetch failure" not in str(error):
            raise
        raise ConnectionError(
            "`backbone_weights` must be a file where Keras cannot download "
            "ImageNet's: --backbone-weights FILE. Fetch it on another machine "
            "with keras.applications, include_top=False. Received: "
            f"backbone_weights=imagenet, {error}"
        ) from error


def _filled(network, weights):
    if weights is None:
        return network
    # Keras warns of each layer that a wrong file does not fill.
    with warnings.catch_warnings(record=True) as notes:
        try:
            network.load_weights(weights)
        except ValueError as error:
            raise ValueError(
                "`backbone_weights` must be those of the backbone, of its "
                "width too and without its top. Received: "
                f"{weights}, which does not fit {network.name}."
            ) from error
    for note in notes:
        warnings.warn(note.message, note.category, stacklevel=2)
    return network
