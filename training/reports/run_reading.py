"""Read the files of runs, and note what is missing."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training.recipes.recipe import Recipe
from training.runs.run_directory import RunDirectory


@dataclass
class ReadRun:
    """What could be read of a run; None for what is missing.

    `name` is its folder, or its path where two names are equal. `notes` are
    sentences on what is missing.
    """

    name: str
    directory: RunDirectory
    settings: dict[str, Any]
    recipe: Recipe | None = None
    history: list[dict[str, float]] = field(default_factory=list)
    scores: dict[str, Any] | None = None
    has_encoder: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def settings_but_seed(self) -> str:
        """Equal for runs that differ only in their seed."""
        recipe = self.settings["recipe"] | {"seed": None}
        return json.dumps(recipe, sort_keys=True)


def read_runs(paths: tuple[Path, ...]) -> tuple[list[ReadRun], list[str]]:
    """Reads runs, each once; a folder without a run becomes a note."""
    runs, notes = [], []
    for path in dict.fromkeys(Path(path) for path in paths):
        directory = RunDirectory(path)
        if not directory.settings.exists():
            notes.append(
                f"{path} is left out: it is not a run, it has no "
                f"{directory.settings.name}."
            )
            continue
        try:
            settings = directory.read_settings()
        except (OSError, ValueError) as error:
            notes.append(f"{path} is left out: {error}")
            continue
        run = ReadRun(path.resolve().name, directory, settings)
        _read(run)
        run.has_encoder = directory.encoder.exists()
        if not run.has_encoder:
            run.notes.append(
                f"There is no {directory.encoder.name}, so the page has no "
                "queries, map or classes of it."
            )
        runs.append(run)
    names = [run.name for run in runs]
    for run in runs:
        if names.count(run.name) > 1:
            run.name = str(run.directory.path)
    return runs, notes


def settings_rows(runs: list[ReadRun]) -> list[dict[str, Any]]:
    """Lists every setting of the recipes, those that differ first.

    Dicts with `name`, `values` (one text for each run) and `differs`.
    """
    recipes = [run.settings["recipe"] for run in runs]
    rows = []
    for name in dict.fromkeys(name for recipe in recipes for name in recipe):
        values = [recipe.get(name) for recipe in recipes]
        texts = ["–" if value is None else str(value) for value in values]
        rows.append(
            {"name": name, "values": texts, "differs": len({*texts}) > 1}
        )
    return sorted(rows, key=lambda row: not row["differs"])


def _numbers(directory):
    """The numbers of each evaluation."""
    return [
        {k: v for k, v in line.items() if isinstance(v, int | float)}
        for line in directory.read_history()
        if "step" in line
    ]


def _read(run):
    """Reads the other files of a run; a note for each that cannot be read."""
    directory = run.directory
    for name, read, words in (
        (
            "recipe",
            lambda: Recipe.from_settings(run.settings["recipe"]),
            "The recipe is of another version, so no image can be embedded",
        ),
        (
            "history",
            lambda: _numbers(directory),
            "history.jsonl cannot be read",
        ),
        ("scores", directory.read_scores, "scores.json cannot be read"),
    ):
        if name == "scores" and not directory.is_finished:
            run.notes.append(
                "There is no scores.json: the run is not finished. The "
                "command that started it continues it."
            )
            continue
        try:
            setattr(run, name, read())
        except (AttributeError, OSError, TypeError, ValueError) as error:
            run.notes.append(f"{words} ({error}).")
