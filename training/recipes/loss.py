"""The loss of a recipe."""

from typing import Any

import keras_gsp as gsp
from training.recipes.recipe import Recipe

# Word -> its loss, and which field of a recipe each argument takes.
LOSSES: dict[str, tuple[type, dict[str, str]]] = {
    "c1": (gsp.losses.CosineContrastiveLoss, {"margin": "cosine_margin"}),
    "c2": (
        gsp.losses.ContrastiveLoss,
        {
            "positive_margin": "positive_margin",
            "negative_margin": "negative_margin",
        },
    ),
    "triplet": (gsp.losses.TripletLoss, {"margin": "triplet_margin"}),
    "ms": (
        gsp.losses.MultiSimilarityLoss,
        {
            "alpha": "ms_alpha",
            "beta": "ms_beta",
            "base": "ms_base",
            "mining_margin": "ms_mining_margin",
        },
    ),
    "supcon": (gsp.losses.SupConLoss, {"temperature": "contrast_temperature"}),
    "ntxent": (gsp.losses.NTXentLoss, {"temperature": "contrast_temperature"}),
    "circle": (
        gsp.losses.CircleLoss,
        {"margin": "circle_margin", "scale": "circle_scale"},
    ),
    "margin": (
        gsp.losses.MarginLoss,
        {
            "margin": "boundary_margin",
            "beta": "boundary",
            "learn_beta": "learn_boundary",
        },
    ),
    "lifted": (
        gsp.losses.LiftedStructureLoss,
        {"negative_margin": "lifted_margin"},
    ),
    "n-pair": (gsp.losses.NPairLoss, {}),
    "potential-field": (
        gsp.losses.PotentialFieldLoss,
        {"radius": "field_radius", "decay": "field_decay"},
    ),
    "smooth-ap": (gsp.losses.SmoothAPLoss, {"temperature": "rank_temperature"}),
    "recall-at-k": (
        gsp.losses.RecallAtKLoss,
        {"temperature": "rank_temperature"},
    ),
    "proxy-nca": (
        gsp.losses.ProxyNCALoss,
        {"temperature": "proxy_temperature"},
    ),
    "proxy-anchor": (
        gsp.losses.ProxyAnchorLoss,
        {"margin": "anchor_margin", "alpha": "anchor_alpha"},
    ),
    "soft-triple": (
        gsp.losses.SoftTripleLoss,
        {
            "scale": "soft_triple_scale",
            "gamma": "soft_triple_gamma",
            "margin": "soft_triple_margin",
        },
    ),
    "arcface": (
        gsp.losses.ArcFaceLoss,
        {"margin": "arcface_margin", "scale": "face_scale"},
    ),
    "cosface": (
        gsp.losses.CosFaceLoss,
        {"margin": "cosface_margin", "scale": "face_scale"},
    ),
    "normalized-softmax": (
        gsp.losses.NormalizedSoftmaxLoss,
        {"temperature": "softmax_temperature"},
    ),
    "libc": (gsp.losses.IntraBatchLoss, {}),
}


def build_loss(recipe: Recipe) -> Any:
    """Returns the pair or proxy loss that a recipe names."""
    kind, fields = LOSSES[recipe.loss]
    chosen = {name: getattr(recipe, field) for name, field in fields.items()}
    if recipe.uses_pairs:
        chosen["normalization"] = recipe.normalization
    if recipe.miner != "none":
        miner = recipe.miner.replace("-", "_")
        chosen |= {"miner": miner, "seed": recipe.seed}
    return kind(**chosen)


def build_loss_layer(recipe: Recipe, num_classes: int) -> Any:
    """Returns the layer that holds a loss's own weights, or None."""
    if recipe.loss == "libc":
        return gsp.layers.IntraBatchClassifier(num_classes)
    if recipe.loss == "margin" and recipe.learn_boundary:
        return gsp.layers.LearnedBoundary(initial_boundary=recipe.boundary)
    return None


def build_regularizer(recipe: Recipe) -> Any:
    """Returns the zero-shot or cross-batch loss of a recipe, or None.

    Cross-batch learning takes the recipe's own loss, on the embeddings of
    each half expressed with the prototypes of the other.
    """
    match recipe.regularizer:
        case "none":
            return None
        case "zsr":
            return gsp.losses.ZeroShotLoss(
                recipe.ridge, recipe.zero_shot_scale, seed=recipe.seed
            )
        case "xml":
            return gsp.losses.CrossBatchLoss(
                build_loss(recipe), recipe.ridge, seed=recipe.seed
            )
