"""The encoder of a recipe: backbone, pooling, histogram, normalization."""

from typing import Any

import keras

import keras_gsp as gsp
from keras_gsp._encoding import input_of
from training.recipes.backbone import build_backbone
from training.recipes.batches import preprocessing_of
from training.recipes.choices import (
    DIVIDED,
    FEW,
    is_gsp,
    make_pooling,
)
from training.recipes.recipe import Recipe

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
    return gsp.models.build_encoder(
        backbone,
        embedding_size=recipe.embedding_size,
        pooling=build_pooling(recipe),
        normalization=recipe.normalization,
        histogram=build_histogram(recipe),
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


def build_histogram(recipe: Recipe) -> keras.layers.Layer | None:
    """Returns a regularizer's histogram layer without GSP, or None."""
    if recipe.regularizer == "none" or is_gsp(recipe.pooling):
        return None
    return gsp.layers.PrototypeHistogram(
        recipe.num_prototypes,
        name="histogram",
    )
