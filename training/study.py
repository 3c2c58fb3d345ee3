"""Trains a whole table: `python -m training.study birds50 --data-dir ...`."""

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from training.protocols.report import run_report
from training.recipes.studies import STUDIES
from training.runs.run_directory import RunDirectory
from training.runs.train_run import ERRORS, run_settings


@dataclass(frozen=True)
class StudyCommand:
    """Trains every cell of a table that is missing; goes on where it stopped.

    A finished cell, and a finished fold of an unfinished cell, is not trained
    again.
    """

    study: Annotated[str, tyro.conf.Positional]
    """glyphs, birds50, collage, omniglot, cub, cars, sop or inshop."""
    data_dir: str | None = None
    """Folder, archive or list file of the data set."""
    backbone_weights: str | None = None
    """Weights file of the backbone."""
    loss: tuple[str, ...] = ()
    """Rows of the table; all by default."""
    method: tuple[str, ...] = ()
    """Columns of the table; all by default."""
    steps: int | None = None
    """Training steps of each model; the study's own by default."""
    repeats: int | None = None
    """How often each model is trained; the study's own by default."""
    seed: int = 0
    """First seed."""
    name: str | None = None
    """Name of the study's folder; by default its own."""
    runs: Path = Path("runs")
    """Folder that holds the study's folder."""


def run_study(command: StudyCommand) -> Path:
    """Trains the missing cells of a study.

    Args:
        command: Which study, which cells, where the data are.

    Returns:
        The study's folder, with a run directory for each cell.

    Raises:
        ValueError: an unknown study, row or column, or a cell's folder that
            holds another recipe.
    """
    from training.protocols.run_protocol import run_protocol

    cells = chosen_cells(command)
    folder = command.runs / (command.name or command.study)
    missing = []
    for (loss, method), recipe in cells.items():
        directory = RunDirectory(folder / f"{loss}.{method}")
        if directory.is_finished:
            _check_same(directory, recipe)
            continue
        directory.check(run_settings(recipe))
        missing.append((directory, recipe))
    print(f"{folder}: {len(cells) - len(missing)} of {len(cells)} cells done")
    splits = None
    for directory, recipe in missing:
        splits = splits or _splits(recipe)
        directory.begin(run_settings(recipe))
        scores = run_protocol(recipe, splits, directory)
        print(run_report(directory, scores), flush=True)
    return folder


def chosen_cells(command: StudyCommand):
    """(loss, method) -> recipe of the cells that a command names."""
    if command.study not in STUDIES:
        raise ValueError(
            f"`study` must be one of {', '.join(STUDIES)}. Received: "
            f"study={command.study!r}."
        )
    cells = STUDIES[command.study].cells
    for position, name in enumerate(("loss", "method")):
        known = dict.fromkeys(cell[position] for cell in cells)
        for word in getattr(command, name):
            if word not in known:
                raise ValueError(
                    f"`{name}` must be one of {', '.join(known)}. Received: "
                    f"{name}={word!r}."
                )
    return {
        (loss, method): _changed(recipe, command)
        for (loss, method), recipe in cells.items()
        if loss in (command.loss or [loss])
        and method in (command.method or [method])
    }


def _changed(recipe, command):
    changes = {
        name: getattr(command, name)
        for name in ("data_dir", "backbone_weights", "steps", "repeats")
        if getattr(command, name) is not None
    }
    if "steps" in changes:
        every = min(recipe.steps_per_evaluation, changes["steps"])
        changes["steps_per_evaluation"] = every
    return replace(recipe, seed=recipe.seed + command.seed, **changes)


def _splits(recipe):
    from training.recipes.data import read_recipe

    # The cells of a study share data set and crop.
    return read_recipe(recipe)


def _check_same(directory, recipe):
    saved = directory.read_recipe()
    if saved != recipe:
        differing = [
            name
            for name, value in vars(recipe).items()
            if getattr(saved, name) != value
        ]
        raise ValueError(
            f"{directory.path} must be a cell of this very study. Received "
            f"one with another {', '.join(differing)}. Choose another --name."
        )


def main(arguments=None):
    """Runs the command line."""
    command = tyro.cli(
        StudyCommand,
        prog="python -m training.study",
        description=__doc__,
        args=arguments,
    )
    begin = time.monotonic()
    try:
        folder = run_study(command)
    except ERRORS as error:
        sys.exit(f"error: {error}")
    from training.tables import study_table

    print(f"{time.monotonic() - begin:.0f} s")
    print(study_table(folder))


if __name__ == "__main__":
    main()
