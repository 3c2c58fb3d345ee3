"""Scores a run's encoder: `python -m training.evaluate runs/NAME`."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from training.runs.command_line import check_new, run_command
from training.runs.run_directory import RunDirectory, write_json
from training.runs.scoring import (
    augmentation_scores,
    embed,
    load_encoder,
    score,
    score_lines,
)


@dataclass(frozen=True)
class EvaluateCommand:
    """Scores the encoder of a run on any data set."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run directory, for example `runs/glyphs,seed=1`."""
    data_dir: str | None = None
    """Folder or archive of the data set to score; by default the run's."""
    split: Literal["test", "validation", "train", "all"] = "test"
    """Side of the data set; all: every class, for data that the run has not
    seen."""
    augmentation: bool = False
    """test: score a gallery whose rows know their neighbors too, with settings
    that validation classes choose; a fifth of each class at a time searches
    the others."""
    output: Path | None = None
    """New JSON file for the scores, which are also printed."""

    def __post_init__(self) -> None:
        if self.augmentation and self.split != "test":
            raise ValueError(
                "`augmentation` needs split=test. Received: "
                f"split={self.split}."
            )


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    run_command("evaluate", __doc__, EvaluateCommand, _evaluate, arguments)


def _evaluate(command):
    directory = RunDirectory(command.run)
    # The saved encoder has its backbone, even if features were cached.
    recipe = directory.read_recipe().with_(cache_features=False)
    check_new(command, "output")
    recipe = recipe.with_(data_dir=command.data_dir or recipe.data_dir)
    encoder = load_encoder(directory)
    from training.recipes.data import load_splits, read_recipe

    if command.split == "all":
        # All classes, however the run's own data were split.
        sides = {"test": read_recipe(recipe).every_image()}
    else:
        splits = load_splits(recipe, directory.read_classes())
        sides = {"test": splits.sides()[command.split]}
        if command.split == "test":
            sides = splits.scored()
    scores = score(encoder, recipe, sides)
    del scores["queries"]
    if command.augmentation:
        parts = [
            (embed(encoder, recipe, side), side.labels)
            for side in (splits.test, splits.validation)
        ]
        scores |= augmentation_scores(*parts[0], *parts[1])
    if command.output is not None:
        write_json(command.output, scores)
    print(*score_lines(scores), sep="\n")
    word = shlex.quote(str(command.run))
    print(f"Next: python -m training.export {word} --index exact")


if __name__ == "__main__":
    main()
