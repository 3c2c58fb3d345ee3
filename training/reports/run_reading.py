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


def _read(run):
    """Reads the other files of a run; a note for each that cannot be read."""
    directory = run.directory
    for name, read, words in (
        (
            "recipe",
            lambda: Recipe.from_settings(run.settings["recipe"]),
            "The recipe is of another version, so no image can be embedded",
        ),
        ("history", lambda: _numbers(directory), "history.jsonl is damaged"),
        ("scores", directory.read_scores, "scores.json is damaged"),
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
        parts = [f"{name_in_words(k)} {in_words(v)}" for k, v in value.items()]
        return ", ".join(parts) or "–"
    if isinstance(value, list | tuple):
        return ", ".join(map(in_words, value)) or "–"
    words = {True: "yes", False: "no", None: "–"}
    # 1 and 1.0 are equal to True.
    if value is None or isinstance(value, bool):
        return words[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def name_in_words(name: str) -> str:
    """Writes the name of a setting in words."""
    return name.replace("_", " ")


def changed_in_words(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Lists the settings of `now` that differ from those of `before`."""
    changed = []
    for name in dict.fromkeys([*now, *before]):
        one, other = before.get(name), now.get(name)
        stem = name.removesuffix("_arguments")
        if stem != name and before.get(stem) != now.get(stem):
            continue  # All arguments of another class differ.
        if isinstance(one, dict) and isinstance(other, dict):
            other = {k: v for k, v in other.items() if one.get(k) != v} or other
        if name != "seed" and one != other:
            changed.append(f"{name_in_words(name)} {in_words(other)}")
    return ", ".join(changed)


def settings_tables(recipes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Splits the settings of recipes, one for each method.

    Dict with `names` of those that differ, `rows` with their values for each
    recipe, and `shared`, pairs of name and value; all in words.
    """
    names = dict.fromkeys(name for recipe in recipes for name in recipe)
    values = {
        name: [in_words(recipe.get(name)) for recipe in recipes]
        for name in names
        if name != "seed"
    }
    differing = [name for name, row in values.items() if len({*row}) > 1]
    columns = [values[name] for name in differing]
    return {
        "names": [name_in_words(name) for name in differing],
        "rows": [list(row) for row in zip(*columns, strict=True)],
        "shared": [
            (name_in_words(name), row[0])
            for name, row in values.items()
            if name not in differing
        ],
    }
