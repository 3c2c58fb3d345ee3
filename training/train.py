"""Trains a recipe: `python -m training.train glyphs-gsp --seed 1`."""

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from training.protocols.report import run_report
from training.protocols.run_protocol import train_recipe
from training.recipes.choice import RecipeOptions, choose_recipe
from training.recipes.named import run_name
from training.runs.run_directory import RunDirectory
from training.runs.train_run import ERRORS, run_settings


@dataclass(frozen=True)
class TrainCommand(RecipeOptions):
    """Trains a recipe and scores it on unseen classes."""

    recipe_name: tyro.conf.Suppress[str] = ""
    name: str | None = None
    """Name of the run; by default the recipe's with what was changed."""
    runs: Path = Path("runs")
    """Folder that holds the runs."""


def main(arguments=None):
    """Runs the command line."""
    try:
        command = _parse(arguments)
        recipe = command.recipe
        name = command.name or run_name(command.recipe_name, recipe)
        directory = RunDirectory(command.runs / name)
        directory.check(run_settings(recipe))
        scores = train_recipe(recipe, directory)
    except ERRORS as error:
        sys.exit(f"error: {error}")
    print(run_report(directory, scores))


def _parse(arguments):
    program = "python -m training.train"
    name, recipe, options = choose_recipe(
        arguments, f"usage: {program} RECIPE [options]"
    )
    return tyro.cli(
        tyro.conf.OmitArgPrefixes[TrainCommand],
        default=TrainCommand.of(recipe, recipe_name=name),
        prog=f"{program} {name}",
        description=__doc__,
        args=options,
    )


if __name__ == "__main__":
    main()
