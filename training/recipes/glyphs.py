"""Every method on the embedded data set, as data."""

from dataclasses import replace
from typing import Any

from training.recipes.published import LOSSES
from training.recipes.recipe import (
    CLASSIFIER_LOSSES,
    PAIR_LOSSES,
    PROXY_LOSSES,
    Recipe,
)
from training.recipes.sampled_proxies import SAMPLED

# From scratch the network itself learns fast: at the papers' 100 times its
# rate, proxies would leap further than they are long.
GAP = Recipe(
    dataset="glyphs",
    pooling="gap",
    learning_rate=2e-3,
    proxy_learning_rate_multiplier=5.0,
)
GSP = replace(GAP, pooling="gsp")
ZSR = replace(GSP, regularizer="zsr")
XML = replace(GAP, regularizer="xml")
# As in the study `glyphs`: classes are large enough for 12 samples, and proxies
# start after a third of training.
CCP = replace(
    GAP,
    **{
        **SAMPLED,
        "ccp": "on",
        "steps_per_evaluation": 50,
        "ccp_warmup": 6,
        "ccp_pool_size": 12,
        "normalization": "ball",
    },
)

# A proxy loss learns from single images, so that many small batches teach more
# than half as many of twice the size.
PROXY_LEARNING: dict[str, Any] = {
    "samples_per_class": 2,
    "steps": 1800,
    "steps_per_evaluation": 200,
    "learning_rate": 3e-3,
    "proxy_learning_rate_multiplier": 1.0,
    "ramp_steps": 50,
    "schedule": "cosine",
    "fall_share": 0.25,
}


# A new network gives all images nearly one direction: there, the papers'
# sharpness of 40 sees little more than the nearest negative, and nothing is
# learned (MAP@R .016 after 900 steps, .156 with 10).
FROM_RANDOM: dict[str, dict[str, Any]] = {"ms": {"ms_beta": 10.0}}


def with_loss(recipe: Recipe, loss: str) -> Recipe:
    """A recipe with another loss, and with how that loss is trained."""
    own: dict[str, Any] = {"loss": loss, **FROM_RANDOM.get(loss, {})}
    if loss in PROXY_LOSSES:
        own |= PROXY_LEARNING
    return replace(recipe, **own)


RECIPES = {
    "glyphs": GAP,
    "glyphs-gap": GAP,
    "glyphs-gmp": replace(GAP, pooling="gmp"),
    "glyphs-gem": replace(GAP, pooling="gem"),
    "glyphs-gsp": GSP,
    "glyphs-gem-gsp": replace(GSP, pooling="gem-gsp"),
    "glyphs-gsp-zsr": ZSR,
    "glyphs-xml": XML,
    "glyphs-gsp-xml": replace(GSP, regularizer="xml"),
    "glyphs-xbm": replace(GAP, memory="xbm"),
    "glyphs-gsp-xbm": replace(GSP, memory="xbm"),
    "glyphs-ccp": CCP,
}

# Every loss alone, those of the papers with every method as well.
RECIPES |= {
    f"glyphs-{loss}": with_loss(GAP, loss)
    for loss in (*PAIR_LOSSES, *PROXY_LOSSES, *CLASSIFIER_LOSSES)
}
RECIPES |= {
    name: with_loss(recipe, loss)
    for loss in LOSSES
    for name, recipe in {
        f"glyphs-{loss}-gsp": GSP,
        f"glyphs-{loss}-gsp-zsr": ZSR,
        f"glyphs-{loss}-xml": XML,
    }.items()
}

RECIPES |= {
    name: with_loss(recipe, loss)
    for loss in LOSSES
    if loss in PAIR_LOSSES
    for name, recipe in {
        f"glyphs-{loss}-proxies": replace(CCP, ccp="single"),
        f"glyphs-{loss}-ccp": CCP,
        f"glyphs-{loss}-ccp-gsp": replace(CCP, pooling="gsp"),
    }.items()
}
