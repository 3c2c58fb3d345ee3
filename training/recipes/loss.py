"""The loss of a recipe."""

import keras_gsp as gsp
from training.recipes.recipe import LIST_LOSSES, Recipe


def build_loss(recipe: Recipe):
    """Returns the pair or proxy loss that a recipe names."""
    losses = gsp.losses
    norm = {"normalization": recipe.normalization}
    if recipe.loss not in LIST_LOSSES and recipe.miner != "none":
        norm |= {"miner": recipe.miner.replace("-", "_"), "seed": recipe.seed}
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
        case "supcon":
            return losses.SupConLoss(recipe.contrast_temperature, **norm)
        case "ntxent":
            return losses.NTXentLoss(recipe.contrast_temperature, **norm)
        case "circle":
            return losses.CircleLoss(
                recipe.circle_margin, recipe.circle_scale, **norm
            )
        case "margin":
            return losses.MarginLoss(
                recipe.boundary_margin,
                recipe.boundary,
                learn_beta=recipe.learn_boundary,
                **norm,
            )
        case "lifted":
            return losses.LiftedStructureLoss(
                negative_margin=recipe.lifted_margin, **norm
            )
        case "n-pair":
            return losses.NPairLoss(**norm)
        case "potential-field":
            return losses.PotentialFieldLoss(
                recipe.field_radius, recipe.field_decay, **norm
            )
        case "smooth-ap":
            return losses.SmoothAPLoss(recipe.rank_temperature, **norm)
        case "recall-at-k":
            return losses.RecallAtKLoss(
                temperature=recipe.rank_temperature, **norm
            )
        case "arcface":
            return losses.ArcFaceLoss(recipe.arcface_margin, recipe.face_scale)
        case "cosface":
            return losses.CosFaceLoss(recipe.cosface_margin, recipe.face_scale)
        case "normalized-softmax":
            return losses.NormalizedSoftmaxLoss(recipe.softmax_temperature)


def build_loss_layer(recipe: Recipe):
    """Returns the layer that holds a loss's own weights, or None."""
    if recipe.loss == "margin" and recipe.learn_boundary:
        return gsp.layers.LearntBoundary(initial_boundary=recipe.boundary)
    return None


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
