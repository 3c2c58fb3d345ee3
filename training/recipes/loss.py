"""The loss of a recipe."""

import keras_gsp as gsp
from training.recipes.recipe import Recipe


def build_loss(recipe: Recipe):
    """Returns the pair or proxy loss that a recipe names."""
    losses = gsp.losses
    norm = {"normalization": recipe.normalization}
    match recipe.loss:
        case "c1":
            return losses.CosineContrastiveLoss(recipe.cosine_margin, **norm)
        case "c2":
            return losses.ContrastiveLoss(
                recipe.positive_margin, recipe.negative_margin, **norm
            )
        case "triplet":
            return losses.TripletLoss(recipe.triplet_margin, **norm)
        case "ms":
            return losses.MultiSimilarityLoss(
                recipe.ms_alpha,
                recipe.ms_beta,
                recipe.ms_base,
                mining_margin=recipe.ms_mining_margin,
                **norm,
            )
        case "proxy-nca":
            return losses.ProxyNCALoss(recipe.proxy_temperature)
        case "proxy-anchor":
            return losses.ProxyAnchorLoss(
                recipe.anchor_margin, recipe.anchor_alpha
            )
        case "soft-triple":
            return losses.SoftTripleLoss(
                recipe.soft_triple_scale,
                recipe.soft_triple_gamma,
                recipe.soft_triple_margin,
            )


def build_regularizer(recipe: Recipe):
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
