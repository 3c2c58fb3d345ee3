"""Recipes by name: what a command line may start from and change."""

import difflib
import sys
import textwrap
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any

from training.recipes import glyphs, own_images, published
from training.recipes.recipe import (
    SECTIONS,
    ImageSettings,
    LossSettings,
    MethodSettings,
    NetworkSettings,
    Recipe,
    TrainingSettings,
)


def named_recipes() -> dict[str, Recipe]:
    """Recipes by name, those of the embedded data set first."""
    return {**glyphs.RECIPES, **own_images.RECIPES, **published.RECIPES}


def run_name(name: str, recipe: Recipe) -> str:
    """A run's name: its recipe, every changed setting, and the seed."""
    base = named_recipes()[name]
    changed = [
        # Of a file its name alone: a run's name is a folder's.
        f"{field}={str(getattr(recipe, field)).rpartition('/')[2]}"
        for field in vars(base)
        if getattr(recipe, field) != getattr(base, field)
        and field not in ("seed", "data_dir")
    ]
    return ",".join([name, *changed, f"seed={recipe.seed}"])


@dataclass(frozen=True)
class RecipeOptions:
    """A recipe's settings as a command line shows them, group by group.

    Args:
        images: What is learned from.
        network: From image to embedding.
        losses: The loss and its numbers.
        methods: Regularizer, memory, sampled proxies.
        training: Batches, steps, rates.
    """

    images: ImageSettings
    network: NetworkSettings
    losses: LossSettings
    methods: MethodSettings
    training: TrainingSettings

    @classmethod
    def of(cls, recipe: Recipe, **others: Any) -> "RecipeOptions":
        """The settings of a recipe, to start from.

        Args:
            recipe: The recipe.
            **others: What a subclass has besides.
        """
        sections = {
            name: kind(
                **{
                    field.name: getattr(recipe, field.name)
                    for field in fields(kind)
                }
            )
            for name, kind in SECTIONS.items()
        }
        return cls(**sections, **others)

    @property
    def recipe(self) -> Recipe:
        """The recipe with these settings, checked."""
        values: dict[str, Any] = {}
        for name in SECTIONS:
            values |= vars(getattr(self, name))
        return Recipe(**values)


def choose_recipe(
    arguments: list[str] | None, usage: str
) -> tuple[str, Recipe, list]:
    """Splits a command line into a recipe and the options after it.

    Without a recipe, or with `--help` before one, the recipes are listed and
    the program ends.

    Args:
        arguments: The command line after the program, `None` for the
            process's own.
        usage: The first line of the listing.

    Returns:
        The recipe's name, the recipe, the remaining arguments.

    Raises:
        ValueError: an unknown name; the message shows similar ones.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    recipes = named_recipes()
    if not arguments or arguments[0] in ("-h", "--help"):
        print(listing(recipes, usage))
        sys.exit(0 if arguments else 2)
    name, *options = arguments
    if name not in recipes:
        similar = difflib.get_close_matches(name, recipes, n=5, cutoff=0.4)
        hint = f" Similar: {', '.join(similar)}." if similar else ""
        raise ValueError(
            "The first argument must name a recipe; --help lists them. "
            f"Received: {name}.{hint}"
        )
    return name, recipes[name], options


def listing(recipes: dict, usage: str) -> str:
    """The recipes' names, a paragraph for each data set."""
    lines = [usage, "", "Recipes, by data set (each takes --help):"]
    names = list(recipes)
    for dataset, group in groupby(names, lambda name: recipes[name].dataset):
        words = textwrap.fill(
            "  ".join(group),
            width=79,
            initial_indent="  ",
            subsequent_indent="  ",
            break_on_hyphens=False,
        )
        lines += ["", dataset, words]
    return "\n".join(lines)
