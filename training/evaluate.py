"""Scores a run's encoder: `python -m training.evaluate runs/NAME`."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from training.recipes.recipe import Dataset
from training.runs.run_directory import RunDirectory, write_json
from training.runs.scoring import load_encoder, score


@dataclass(frozen=True)
class EvaluateCommand:
    """Scores the encoder of a run on any data set."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run directory, for example `runs/glyphs-gsp,seed=1`."""
    dataset: Dataset | None = None
    """Data set to score; by default the one of the run."""
    data_dir: str | None = None
    """Where that data set is; by default where the run had it."""
    split: Literal["test", "validation", "train", "all"] = "test"
    """Side of the data set; all: every class of it, as one that the run has
    never seen is scored."""
    output: Path | None = None
    """JSON file for the scores, which must be new; else they are printed
    only."""


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    command = tyro.cli(
        EvaluateCommand,
        prog="python -m training.evaluate",
        description=__doc__,
        args=arguments,
    )
    try:
        scores = _evaluate(command)
    except (ValueError, FileNotFoundError, FileExistsError) as error:
        sys.exit(f"error: {error}")
    for measure, value in scores.items():
        print(f"{measure:>16}  {value:.4f}")


def _evaluate(command):
    directory = RunDirectory(command.run)
    # A complete encoder was saved, whatever was cached to train it.
    recipe = replace(directory.read_recipe(), cache_features=False)
    if command.output is not None and command.output.exists():
        raise FileExistsError(
            f"`output` must be new. Received: {command.output}."
        )
    if command.dataset is not None:
        recipe = replace(recipe, dataset=command.dataset)
    if command.data_dir is not None:
        recipe = replace(recipe, data_dir=command.data_dir)
    encoder = load_encoder(directory)
    images, sides = _images(command, recipe)
    scores = score(encoder, recipe, images, **sides)
    if command.output is not None:
        write_json(command.output, scores)
    return scores


def _images(command, recipe):
    """What is scored, and its queries and gallery where it names them."""
    from training.recipes.data import load_splits, read_recipe

    if command.split == "all":
        # How the run's own data were split says nothing about all of them.
        recipe = replace(recipe, train_classes=None, images_per_class=None)
        return read_recipe(recipe).every_image(), {}
    splits = load_splits(recipe)
    sides = {}
    if command.split == "test":
        sides = {"query": splits.query, "gallery": splits.gallery}
    return getattr(splits, command.split), sides


if __name__ == "__main__":
    main()
