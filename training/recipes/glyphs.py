"""Every method on the embedded data set, as data."""

from dataclasses import replace

from training.recipes.recipe import Recipe

GAP = Recipe(dataset="glyphs", pooling="gap")
GSP = replace(GAP, pooling="gsp")
ZSR = replace(GSP, regularizer="zsr")
XML = replace(GAP, regularizer="xml")
CCP = replace(GAP, ccp="on", proxies_per_class=4, normalization="ball")

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
}

for _loss in (
    "c1",
    "triplet",
    "ms",
    "proxy-nca",
    "proxy-anchor",
    "soft-triple",
):
    RECIPES |= {
        f"glyphs-{_loss}": replace(GAP, loss=_loss),
        f"glyphs-{_loss}-gsp": replace(GSP, loss=_loss),
        f"glyphs-{_loss}-gsp-zsr": replace(ZSR, loss=_loss),
        f"glyphs-{_loss}-xml": replace(XML, loss=_loss),
    }
