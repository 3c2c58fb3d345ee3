"""The pooling and the histogram of a recipe."""

from typing import Any

import keras

import keras_gsp as gsp
from training.recipes.recipe import FEW, MANY, Recipe

# Further arguments of GSP, by word.
GSP_OPTIONS: dict[str, dict[str, Any]] = {
    "gsp": {},
    "gem-gsp": {},
    "gmp-gsp": {"add_max": True},
    "gsp-background": {"prototype_role": "background"},
    "gsp-learned": {"learn_ratio": True},
    "gsp-unary": {"use_unary_costs": True},
}


def build_pooling(recipe: Recipe) -> keras.layers.Layer:
    """Returns the pooling layer that a recipe names.

    GSP gives its histogram as well where a regularizer takes one.
    """
    word = recipe.pooling
    if word in GSP_OPTIONS:
        return gsp.layers.GeneralizedSumPooling(
            recipe.num_prototypes,
            recipe.transport_ratio,
            recipe.inverse_temperature,
            power=recipe.power if word == "gem-gsp" else 1.0,
            learn_power=word == "gem-gsp",
            return_histogram=recipe.regularizer != "none",
            name="pooling",
            **GSP_OPTIONS[word],
        )
    kind, arguments = _without_prototypes(recipe)
    return kind(name="pooling", **arguments)


def build_histogram(recipe: Recipe) -> keras.layers.Layer | None:
    """Returns the layer that a regularizer takes without GSP, or None."""
    if recipe.regularizer == "none" or recipe.pooling in GSP_OPTIONS:
        return None
    return gsp.layers.PrototypeHistogram(
        recipe.num_prototypes,
        recipe.histogram_inverse_temperature,
        name="histogram",
    )


def _without_prototypes(recipe):
    """A pooling's class and its arguments."""
    size = recipe.embedding_size
    part = {"projection_size": max(1, size // FEW)}
    layers = gsp.layers
    kinds = {
        "gap": (keras.layers.GlobalAveragePooling2D, {}),
        "gmp": (keras.layers.GlobalMaxPooling2D, {}),
        "gem": (
            layers.GeneralizedMeanPooling,
            {"power": recipe.power, "learn_power": True},
        ),
        "gap-gmp": (layers.AverageMaxPooling, {}),
        # Its map of values is the encoder's projection.
        "attention": (
            layers.AttentionPooling,
            {"use_value_projection": False},
        ),
        # Kernel size as in the papers' comparison.
        "cbam": (layers.CBAMPooling, {"kernel_size": 3}),
        "crow": (layers.CroWPooling, {}),
        "delf": (layers.DELFPooling, {}),
        "gemax": (
            layers.GeneralizedMaxPooling,
            {"ridge": recipe.gemax_ridge},
        ),
        "gsop": (layers.GSoPPooling, {}),
        "netvlad": (layers.NetVLADPooling, {"num_clusters": FEW, **part}),
        "netvlad-large": (layers.NetVLADPooling, {"num_clusters": MANY}),
        "ot-aggregation": (
            layers.OptimalTransportPooling,
            {"num_clusters": FEW, **part},
        ),
        "otk": (layers.OTKPooling, {"num_references": FEW, **part}),
        "otk-large": (layers.OTKPooling, {"num_references": MANY}),
        "sim-pool": (layers.SimPooling, {"power": 2.0}),
        "smk": (layers.SmoothedMatchKernelPooling, {}),
        "solar": (layers.SOLARPooling, {"power": recipe.power}),
        "weldon": (layers.WELDONPooling, {}),
    }
    return kinds[recipe.pooling]
