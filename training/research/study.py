"""Trains a whole table: `python -m training.research.study emoji --data-dir ...`."""

import contextlib
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from training.recipes.data import check_sources
from training.recipes.ranges import check_fields, not_negative, positive
from training.recipes.recipe import Recipe
from training.research.studies import STUDIES, UNTRAINED
from training.runs.run_directory import RunDirectory, write_json
from training.runs.run_lock import RunTakenError
from training.runs.train_run import ERRORS, run_settings


@dataclass(frozen=True)
class StudyCommand:
    """Trains every model of a table that is missing; goes on where it stopped.

    One seed of every cell is trained before the next, the most telling cells
    first, so that a study that is ended early has a table too. Several
    processes may train one study, each in its turn the next model that no
    other trains.
    """

    study: Annotated[str, tyro.conf.Positional]
    """emoji, emoji-long, emoji-starts, emoji-frozen, emoji-clutter,
    emoji-batch, emoji-proxies, components, birds50, birds50-frozen, screening,
    temperature, glyphs, glyphs-losses, collage, omniglot, cub, cars, sop,
    inshop or one of the poolings: poolings, poolings-glyphs, poolings-birds50,
    poolings-birds50-frozen, poolings-emoji, poolings-emoji-frozen,
    poolings-clutter-frozen."""
    data_dir: str | None = None
    """Folder, archive or list file of the data set."""
    backbone_weights: str | None = None
    """Weights file of the backbone."""
    losses: tuple[str, ...] = ()
    """Rows of the table; all by default. The untrained baseline is always
    there."""
    methods: tuple[str, ...] = ()
    """Methods of the table; all by default."""
    seeds: Annotated[int | None, positive] = None
    """How often each model is trained; the study's own by default. More can
    be added later."""
    first_seed: Annotated[int, not_negative] = 0
    """The first of these seeds."""
    steps: Annotated[int | None, positive] = None
    """Training steps of each model; the study's own by default."""
    steps_per_evaluation: Annotated[int | None, positive] = None
    """Steps between two evaluations; the study's own by default."""
    name: str | None = None
    """Name of the study's folder; by default its own."""
    runs: Path = Path("runs")
    """Folder that holds the study's folder."""
    kept: Path | None = None
    """Models finished elsewhere, `docs/results/STUDY.tar.xz`: those of the
    chosen cells are not trained again."""

    def __post_init__(self) -> None:
        check_fields(self)


def run_study(command: StudyCommand) -> Path:
    """Trains the missing models of a study.

    Args:
        command: Which study, which cells, where the data are.

    Returns:
        The study's folder, with a run directory for each cell.

    Raises:
        ValueError: an unknown study, row or method, too few classes for a
            batch, a cell's folder or kept models of another recipe; all
            before anything is trained.
        FileNotFoundError: no such data, weights or kept models.
    """
    from training.research.protocols.kept_study import bring_back
    from training.research.protocols.ledger import Ledger
    from training.research.protocols.members import members_of
    from training.research.protocols.run_protocol import score_members

    folder = command.runs / (command.name or command.study)
    cells = {}
    for (row, method), recipe in chosen_cells(command).items():
        check_sources(recipe)
        directory = RunDirectory(folder / f"{row}.{method}")
        _check_same(directory, recipe)
        cells[directory] = recipe
    brought = {}
    if command.kept:
        chosen = {one.path.name: recipe for one, recipe in cells.items()}
        others = _other_cells(command, chosen)
        along = bring_back(command.kept, folder, chosen, others)
        brought = {
            RunDirectory(folder / name): recipe
            for name, recipe in along.items()
        }
    queue = _rounds(
        [(directory, one) for one in members_of(recipe)]
        for directory, recipe in cells.items()
    )
    missing = [one for one in queue if not _is_there(*one)]
    done = len(queue) - len(missing)
    print(f"{folder}: {done} of {len(queue)} models are there", flush=True)
    unscored = [one for one in (cells | brought).items() if _lacks_scores(*one)]
    if not missing and not unscored:
        return folder
    splits = _splits([*cells.values()])
    for directory, recipe in cells.items():
        _begin(directory, recipe, command)
    for directory, recipe in unscored:
        score_members(recipe, splits, directory)
    for directory, member in _untaken(missing, splits):
        if _lacks_scores(directory, cells[directory]):
            score_members(cells[directory], splits, directory)
        done = sum(_is_there(*one) for one in queue)
        scores = Ledger(directory.path).directory(member).read_scores()
        print(
            f"{done}/{len(queue)} {directory.path.name} {member.name}: "
            f"MAP@R {scores['map_at_r']:.4f}",
            flush=True,
        )
    if left := sum(not _is_there(*one) for one in queue):
        print(f"models left to other processes: {left}")
    return folder


def _untaken(missing, splits):
    """Trains models one by one, but not those that another process trains.

    Those are looked at again at the end: a process that was killed has left
    its model behind.
    """
    from training.research.protocols.ledger import Ledger
    from training.research.protocols.run_protocol import train_member

    waiting = list(missing)
    while waiting:
        taken = []
        for directory, member in waiting:
            if _is_there(directory, member):
                continue
            try:
                train_member(member, splits, Ledger(directory.path))
            except FileExistsError as error:
                if not _is_anothers(error, directory, member):
                    raise
                taken.append((directory, member))
            else:
                yield directory, member
        if len(taken) == len(waiting):
            return
        waiting = taken


def _is_anothers(error, directory, member):
    """Whether another process trains a model, or has just finished it."""
    from training.research.protocols.ledger import Ledger

    run = Ledger(directory.path).directory(member)
    return isinstance(error, RunTakenError) or run.is_finished


def _is_there(directory, member):
    """Whether nothing of a model is missing."""
    from training.research.protocols.ledger import Ledger

    return Ledger(directory.path).is_finished(member)


def chosen_cells(command: StudyCommand) -> dict[tuple[str, str], Recipe]:
    """(row, method) -> recipe of the cells that a command names.

    Raises:
        ValueError: an unknown word.
    """
    if command.study not in STUDIES:
        raise ValueError(
            f"`study` must be one of {', '.join(STUDIES)}. Received: "
            f"study={command.study!r}."
        )
    study = STUDIES[command.study]
    for name, known in (("losses", study.rows), ("methods", study.methods)):
        for word in getattr(command, name):
            if word not in known:
                raise ValueError(
                    f"`{name}` must be of {', '.join(known)}. Received: "
                    f"{name}={word!r}."
                )
    return {
        (row, method): _changed(recipe, command)
        for (row, method), recipe in study.cells.items()
        if (row, method) == UNTRAINED
        or (
            row in (command.losses or [row])
            and method in (command.methods or [method])
        )
    }


def _other_cells(command, chosen):
    """Folder's name -> recipe of the cells that a command does not name."""
    others = {}
    for (row, method), recipe in STUDIES[command.study].cells.items():
        name = f"{row}.{method}"
        # What these steps allow no recipe for was never trained with them.
        with contextlib.suppress(ValueError):
            if name not in chosen:
                others[name] = _changed(recipe, command)
    return others


def _changed(recipe, command):
    changes = {
        name: getattr(command, name)
        for name in ("data_dir", "backbone_weights")
        if getattr(command, name) is not None
    }
    every = command.steps_per_evaluation or recipe.steps_per_evaluation
    if recipe.steps:
        steps = recipe.steps if command.steps is None else command.steps
        every = min(every, steps)
        changes |= {"steps": steps, "steps_per_evaluation": every}
        changes["repeats"] = command.seeds or recipe.repeats
    return replace(recipe, seed=recipe.seed + command.first_seed, **changes)


def _rounds(queues):
    """The first of every queue, then the second of every queue, ..."""
    queues = list(queues)
    length = max(map(len, queues))
    return [
        queue[i] for i in range(length) for queue in queues if i < len(queue)
    ]


def _splits(recipes):
    from training.recipes.data import read_recipe
    from training.research.protocols.members import check_members

    # The cells of a study share data set and crop.
    return read_recipe(recipes[0], lambda found: check_members(recipes, found))


def _lacks_scores(directory, recipe):
    """Whether a cell's models are all there, but not their scores."""
    from training.research.protocols.ledger import Ledger
    from training.research.protocols.members import members_of

    members = members_of(recipe)
    if not all(map(Ledger(directory.path).is_finished, members)):
        return False
    return not directory.is_finished or directory.read_scores()[
        "num_models"
    ] != len(members)


def _begin(directory, recipe, command):
    """Makes a cell's folder, or takes note of more seeds."""
    settings = run_settings(recipe) | {"study": command.study}
    if not directory.settings.exists():
        directory.begin(settings)
    elif directory.read_recipe().repeats < recipe.repeats:
        write_json(directory.settings, settings)


def _check_same(directory, recipe):
    if not directory.settings.exists():
        return
    saved = directory.read_recipe()
    differing = [
        name
        for name, value in vars(recipe).items()
        if getattr(saved, name) != value and name != "repeats"
    ]
    if differing:
        raise ValueError(
            f"{directory.path} must be a cell of this very study. Received "
            f"one with another {', '.join(differing)}. Choose another --name."
        )


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    command = tyro.cli(
        StudyCommand,
        prog="python -m training.research.study",
        description=__doc__,
        args=arguments,
    )
    begin = time.monotonic()
    try:
        folder = run_study(command)
    except ERRORS as error:
        sys.exit(f"error: {error}")
    from training.research.tables import study_table

    print(f"{time.monotonic() - begin:.0f} s")
    print(study_table(folder))


if __name__ == "__main__":
    main()
