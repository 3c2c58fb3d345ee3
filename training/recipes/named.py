"""Recipes by name, with what `named.toml` and `published.toml` imply."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from training.recipes.choices import PAIR_LOSSES, losses
from training.recipes.recipe import Recipe, check_word

PUBLISHED = ("cub", "cars", "sop", "inshop")
# Recipe -> data set.
OWN = {"glyphs": "glyphs", "folder": "folder", "folder-features": "folder"}
OWN |= {"csv": "csv", "collage": "collage"}
# Columns of the papers' tables -> what they choose. A memory and proxies have
# two sizes there.
METHODS: dict[str, dict[str, str]] = {
    "gap": {},
    "gsp": {"pooling": "gsp"},
    "gsp-zsr": {"pooling": "gsp", "regularizer": "zsr"},
    "xml": {"regularizer": "xml"},
    "ccp": {"ccp": "on"},
    "ccp-s": {"ccp": "on", "size": "small"},
    # Printed as C1+CCP+GSP (thesis, table 5.1); GSP there includes ZSR.
    "ccp-gsp-zsr": {"ccp": "on", "pooling": "gsp", "regularizer": "zsr"},
    "xbm": {"memory": "xbm", "loss": "c1"},
    "xbm-s": {"memory": "xbm", "loss": "c1", "size": "small"},
}
METHODS["xbm-gsp-zsr"] = METHODS["xbm"] | METHODS["gsp-zsr"]
# Options that imply further settings.
CHOICES = ("loss", "pooling", "regularizer", "ccp", "backbone")


def names() -> dict[str, str]:
    """Maps recipes that have a name to their data sets."""
    words = ["", *(f"-{word}" for word in METHODS if word != "gap")]
    return OWN | {f"{one}{word}": one for one in PUBLISHED for word in words}


@cache
def settings_of(file: str) -> list[dict[str, Any]]:
    """Reads the settings in one of the two files."""
    text = (Path(__file__).parent / file).read_text(encoding="utf-8")
    return tomllib.loads(text)["setting"]


def named(name: str, **choices: str) -> Recipe:
    """Returns the recipe of a name, with the settings that a choice implies.

    `choices` are some of `CHOICES`: `named("glyphs", loss="ms")`.
    """
    check_word("recipe", name, names())
    dataset, file = names()[name], "named.toml"
    default = Recipe()
    chosen = {one: getattr(default, one) for one in CHOICES}
    if dataset in PUBLISHED:
        file = "published.toml"
        chosen |= {"backbone": "bn-inception"}
        choices = METHODS.get(name.partition("-")[2], {}) | choices
    elif dataset in ("folder", "csv"):
        chosen |= {"backbone": "mobilenet-v2", "loss": "ms", "pooling": "gem"}
    chosen |= {**choices, "recipe": name, "dataset": dataset}
    check_word("loss", chosen["loss"], losses())
    is_pairs = chosen["loss"] in PAIR_LOSSES
    chosen["kind"] = "pairs" if is_pairs else "proxies"
    values: dict[str, Any] = {"dataset": dataset}
    for setting in settings_of(file):
        when = setting.get("when", {}).items()
        if all(chosen.get(key) in words for key, words in when):
            values |= setting.get("values", {}) | setting.get(dataset, {})
    options = {key: word for key, word in choices.items() if key in CHOICES}
    return Recipe.of(**values | options)
