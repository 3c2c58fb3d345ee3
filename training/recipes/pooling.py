"""The pooling and the histogram of a recipe."""

import keras

import keras_gsp as gsp
from training.recipes.recipe import Recipe


def build_pooling(recipe: Recipe):
    """Returns the pooling layer that a recipe names.

    GSP gives its histogram as well where a regulariser takes one.
    """
    match recipe.pooling:
        case "gap":
            return keras.layers.GlobalAveragePooling2D(name="pooling")
        case "gmp":
            return keras.layers.GlobalMaxPooling2D(name="pooling")
        case "gem":
            return gsp.layers.GeneralizedMeanPooling(
                recipe.power, name="pooling"
            )
        case "gsp" | "gem-gsp":
            return gsp.layers.GeneralizedSumPooling(
                recipe.num_prototypes,
                recipe.transport_ratio,
                recipe.inverse_temperature,
                power=recipe.power if recipe.pooling == "gem-gsp" else 1.0,
                return_histogram=recipe.regularizer != "none",
                name="pooling",
            )


def build_histogram(recipe: Recipe):
    """Returns the layer that a regulariser takes without GSP, or None."""
    if recipe.regularizer == "none" or recipe.pooling in ("gsp", "gem-gsp"):
        return None
    return gsp.layers.PrototypeHistogram(
        recipe.num_prototypes,
        recipe.histogram_inverse_temperature,
        name="histogram",
    )
