"""Every method on the embedded data set, as data."""

from dataclasses import replace

from training.recipes.published_losses import LOSSES
from training.recipes.recipe import PAIR_LOSSES, PROXY_LOSSES, Recipe

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
CCP = replace(
    GAP, ccp="on", ccp_warmup=4, proxies_per_class=4, normalization="ball"
)

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
    f"glyphs-{loss}": replace(GAP, loss=loss)
    for loss in (*PAIR_LOSSES, *PROXY_LOSSES)
}
RECIPES |= {
    name: replace(recipe, loss=loss)
    for loss in LOSSES
    for name, recipe in {
        f"glyphs-{loss}-gsp": GSP,
        f"glyphs-{loss}-gsp-zsr": ZSR,
        f"glyphs-{loss}-xml": XML,
    }.items()
}

RECIPES |= {
    name: replace(recipe, loss=loss)
    for loss in LOSSES
    if loss in PAIR_LOSSES
    for name, recipe in {
        f"glyphs-{loss}-proxies": replace(CCP, ccp="single"),
        f"glyphs-{loss}-ccp": CCP,
        f"glyphs-{loss}-ccp-gsp": replace(CCP, pooling="gsp"),
    }.items()
}
