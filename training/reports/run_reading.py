"""Read the files of runs, note what is missing, and put settings in words."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training.recipes.recipe import Recipe
from training.runs.run_directory import RunDirectory


@dataclass
class ReadRun:
    """What could be read of a run; None for what is missing, with a note.

    `name` is its folder, or its path where two names are equal.
    """

    name: str
    directory: RunDirectory
    settings: dict[str, Any]
    recipe: Recipe | None = None
    history: list[dict[str, float]] = field(default_factory=list)
    scores: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def settings_but_seed(self) -> str:
        """Equal for runs that differ only in their seed."""
        recipe = self.settings["recipe"] | {"seed": None}
        return json.dumps(recipe, sort_keys=True)


def read_runs(paths: tuple[Path, ...]) -> tuple[list[ReadRun], list[str]]:
    """Reads runs, each once; a folder without a run becomes a note."""
    runs, notes = [], []
    for path in {path.resolve(): path for path in map(Path, paths)}.values():
        directory = RunDirectory(path)
        try:
            settings = directory.read_settings()
        except (OSError, ValueError) as error:
            notes.append(f"{path} is left out: it is not a run ({error}).")
            continue
        run = ReadRun(path.name, directory, settings)
        _read(run)
        runs.append(run)
    names = names_of([run.directory.path.resolve().parts for run in runs])
    for run, name in zip(runs, names, strict=True):
        run.name = name
    return runs, notes


def names_of(paths: list[tuple[str, ...]]) -> list[str]:
    """The last parts of paths; where some are equal, the parts that differ."""
    if len({parts[-1] for parts in paths}) == len(paths):
        return [parts[-1] for parts in paths]
    for end, rest in ((0, slice(1, None)), (-1, slice(-1))):
        while min(map(len, paths)) > 1 and len({p[end] for p in paths}) == 1:
            paths = [parts[rest] for parts in paths]
    return ["/".join(parts) for parts in paths]


def _read(run):
    """Reads the other files of a run; a note for each that cannot be read."""
    directory = run.directory
    recipe = run.settings["recipe"]
    old = "The recipe is of another version, so no image can be embedded"
    for name, read, words in (
        ("recipe", lambda: Recipe.from_settings(recipe), old),
        ("history", lambda: _numbers(directory), "history.jsonl is damaged"),
        ("scores", directory.read_scores, "scores.json is damaged"),
    ):
        try:
            setattr(run, name, read())
        except FileNotFoundError:
            run.notes.append(
                "There is no scores.json: the run is not finished. The "
                "command that started it continues it."
            )
        except (AttributeError, OSError, TypeError, ValueError) as error:
            run.notes.append(f"{words} ({error}).")


def _numbers(directory):
    """The numbers of each evaluation."""
    return [
        {k: v for k, v in line.items() if isinstance(v, int | float)}
        for line in directory.read_history()
        if "step" in line
    ]


def in_words(value: Any) -> str:
    """Writes the value of a setting in words."""
    if isinstance(value, dict):
        value = [f"{_name(k)} {in_words(v)}" for k, v in value.items()]
        return ", ".join(value) or "–"
    if isinstance(value, list | tuple):
        return ", ".join(map(in_words, value)) or "–"
    # 1 and 1.0 are equal to True.
    if value is None or isinstance(value, bool):
        return {True: "yes", False: "no", None: "–"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def settings_rows(
    recipes: Sequence[dict[str, Any]],
) -> list[tuple[str, list[str]]]:
    """Puts the settings of recipes in words, those that differ first.

    Pairs of a name and its value for each recipe, or the one that all share.
    """
    rows = []
    for name in dict.fromkeys(name for recipe in recipes for name in recipe):
        values = [in_words(recipe.get(name)) for recipe in recipes]
        if name != "seed":
            shown = values if len({*values}) > 1 else values[:1]
            rows.append((_name(name), shown))
    return sorted(rows, key=lambda row: len(row[1]) == 1)


def _name(setting):
    return setting.replace("_", " ")
