"""Trains a recipe: `python -m training.train glyphs-gsp --seed 1`."""

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from training.recipes.choice import RecipeOptions, choose_recipe, run_name
from training.recipes.data import check_sources, load_splits
from training.runs.distribution import Distribution, Kind
from training.runs.run_directory import RunDirectory
from training.runs.train_run import ERRORS, run_settings, train_run


@dataclass(frozen=True)
class TrainCommand(RecipeOptions):
    """Trains a recipe and scores it on unseen classes."""

    recipe_name: tyro.conf.Suppress[str] = ""
    name: str | None = None
    """Name of the run; by default the recipe's with what was changed."""
    runs: Path = Path("runs")
    """Folder that holds the runs."""
    distribution: Kind = "none"
    """Devices of this host to train on: one; all on JAX, with copies (data)
    or with proxies cut by class (model); all on TensorFlow (mirrored)."""
    model_devices: int = 2
    """model: parts that proxies and class embeddings are cut into."""


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    try:
        command = _parse(arguments)
        recipe = command.recipe
        name = command.name or run_name(command.recipe_name, recipe)
        directory = RunDirectory(command.runs / name)
        distribution = Distribution(command.distribution, command.model_devices)
        check_sources(recipe)
        with distribution.together():
            _train(recipe, directory, distribution)
    except ERRORS as error:
        sys.exit(f"error: {error}")


def _train(recipe, directory, distribution):
    if recipe.protocol != "single":
        raise ValueError(
            "`protocol` must be single: `python -m training.research.study` "
            f"trains several models. Received: protocol={recipe.protocol}."
        )
    if distribution.num_processes == 1:
        directory.check(run_settings(recipe))
    distribution.check(recipe)
    splits = load_splits(recipe)
    scores = train_run(recipe, splits, directory, distribution=distribution)
    if distribution.is_first:
        print(run_report(directory, scores))


def run_report(directory: RunDirectory, scores: dict) -> str:
    """The scores of a finished run, one a line."""
    lines = [f"  {name:>16}  {value:.4f}" for name, value in scores.items()]
    title = (
        f"{directory.path}: {scores['num_queries']} images of unseen classes"
    )
    return "\n".join([title, *lines])


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
