"""Reads what a run directory holds, and says in sentences what is missing."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training.recipes.recipe import Recipe
from training.runs.run_directory import RunDirectory

REPORT_MARK = "<!-- keras_gsp report -->"
"""Stands in the first lines of a report: only such a file is replaced."""

DATA_SETTINGS = (
    "dataset",
    "data_dir",
    "source",
    "train_classes",
    "images_per_class",
    "crop_size",
)
"""Settings that say which images a run is scored on, and how they are cut."""


@dataclass
class ReadRun:
    """A run as far as it can be read.

    Args:
        name: Name of its folder, or its path where two are called alike.
        directory: Where it lies.
        settings: What `settings.json` holds.
        recipe: Its recipe; None where this version cannot read it.
        history: Its evaluations, oldest first.
        scores: What `scores.json` holds; None for an unfinished run.
        encoder: The directory that holds an encoder, of a protocol its first
            finished model's; None where there is none.
        notes: Sentences on what is missing.
    """

    name: str
    directory: RunDirectory
    settings: dict[str, Any]
    recipe: Recipe | None = None
    history: list[dict[str, float]] = field(default_factory=list)
    scores: dict[str, Any] | None = None
    encoder: RunDirectory | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def settings_but_seed(self) -> str:
        """One text for all runs that differ in their seed alone."""
        recipe = dict(self.settings.get("recipe", {}))
        recipe.pop("seed", None)
        return json.dumps(recipe, sort_keys=True)


def read_runs(paths: tuple[Path, ...]) -> tuple[list[ReadRun], list[str]]:
    """Reads runs; a folder that holds none is named in a sentence.

    Args:
        paths: Run directories; one given twice is read once.

    Returns:
        The runs, and sentences on the folders that are none.
    """
    runs, notes = [], []
    for path in dict.fromkeys(Path(path) for path in paths):
        try:
            runs.append(_read_run(path))
        except ValueError as error:
            notes.append(str(error))
    names = [run.name for run in runs]
    for run in runs:
        if names.count(run.name) > 1:
            run.name = str(run.directory.path)
    return runs, notes


def read_settings(runs: list[ReadRun]) -> list[dict[str, Any]]:
    """Every setting of the recipes, those that differ first.

    Returns:
        Dicts with `name`, `values`, one text for each run, and `differs`.
    """
    recipes = [run.settings["recipe"] for run in runs]
    rows = []
    for name in dict.fromkeys(name for recipe in recipes for name in recipe):
        values = [_words(recipe.get(name)) for recipe in recipes]
        rows.append(
            {"name": name, "values": values, "differs": len({*values}) > 1}
        )
    return sorted(rows, key=lambda row: not row["differs"])


def _words(value):
    return "–" if value is None else str(value)


def _read_run(path):
    directory = RunDirectory(path)
    try:
        settings = json.loads(directory.settings.read_text())
    except FileNotFoundError as error:
        raise ValueError(
            f"{path} is left out: it is no run, it has no "
            f"{directory.settings.name}."
        ) from error
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{path} is left out: its {directory.settings.name} cannot be "
            f"read ({error})."
        ) from error
    if not isinstance(settings, dict) or not isinstance(
        settings.get("recipe"), dict
    ):
        raise ValueError(
            f"{path} is left out: its {directory.settings.name} holds no "
            "recipe."
        )
    name = path.resolve().name
    run = ReadRun(name, directory, settings)
    run.recipe = _recipe(run)
    run.history = _history(run)
    run.scores = _scores(run)
    run.encoder = _encoder_directory(run)
    return run


def _recipe(run):
    saved = run.settings["recipe"]
    try:
        return Recipe(**saved)
    except (TypeError, ValueError) as error:
        reason = error
    try:
        found = Recipe(**{n: saved[n] for n in DATA_SETTINGS if n in saved})
    except (TypeError, ValueError):
        run.notes.append(
            f"The recipe is one of another version ({reason}), so no image "
            "can be embedded."
        )
        return None
    run.notes.append(
        f"The recipe is one of another version ({reason}); of it only what "
        "says where its images are is used."
    )
    return found


def _history(run):
    lines, found, broken = [], [], 0
    if run.directory.history.exists():
        lines = run.directory.history.read_text(errors="replace").splitlines()
    for line in lines:
        try:
            found.append(_numbers(json.loads(line)))
        except (ValueError, AttributeError, KeyError):
            broken += 1
    if broken:
        run.notes.append(
            f"{broken} of {len(lines)} lines of "
            f"{run.directory.history.name} cannot be read and are left out."
        )
    return found


def _numbers(line):
    """The numbers of a line, which must say at which step they were."""
    line["step"]
    return {
        name: value
        for name, value in line.items()
        if isinstance(value, int | float)
    }


def _scores(run):
    if not run.directory.is_finished:
        run.notes.append(
            f"There is no {run.directory.scores.name}: the run is not "
            "finished. The command that began it goes on with it."
        )
        return None
    try:
        scores = json.loads(run.directory.scores.read_text())
        return dict(scores.items())
    except (OSError, ValueError, AttributeError) as error:
        run.notes.append(
            f"{run.directory.scores.name} cannot be read ({error})."
        )
        return None


def _encoder_directory(run):
    if run.directory.encoder.exists():
        return run.directory
    members = sorted((run.directory.path / "members").glob("*/"))
    finished = [d for d in map(RunDirectory, members) if d.encoder.exists()]
    if finished:
        run.notes.append(
            f"Images are embedded with one of its {len(members)} models, "
            f"{finished[0].path.name}."
        )
        if not run.history:
            run.history = finished[0].read_history()
        return finished[0]
    run.notes.append(
        f"There is no {run.directory.encoder.name}, hence no scores of "
        "classes, neighbors, map or prototypes."
    )
    return None
