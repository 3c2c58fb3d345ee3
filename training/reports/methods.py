"""Reads runs, groups those of one method, compares each with the first."""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from training.recipes.recipe import Recipe
from training.reports.searched import Searched
from training.runs.run_directory import RunDirectory

MEASURES = {"map_at_r": "MAP@R", "precision_at_1": "P@1"}


@dataclass
class ReadRun:
    """What could be read of a run; None for what is missing, with a note."""

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


def read_runs(paths: Sequence[Path]) -> tuple[list[ReadRun], list[str]]:
    """Reads runs, each once; a folder without a run becomes a note.

    A run is named by its folder, by its path where two names are equal.
    """
    runs, notes = [], []
    folders = {path.resolve(): path for path in map(Path, paths)}
    names = [path.name for path in folders]
    for path, given in folders.items():
        directory = RunDirectory(path)
        try:
            settings = directory.read_settings()
        except (OSError, ValueError) as error:
            notes.append(f"{given} is left out: it is not a run ({error}).")
            continue
        is_unique = names.count(path.name) == 1
        run = ReadRun(
            path.name if is_unique else str(given), directory, settings
        )
        _read(run)
        runs.append(run)
    return runs, notes


def _read(run):
    """Reads the other files of a run; a note for each that cannot be read."""
    directory, recipe = run.directory, run.settings["recipe"]
    old = "The recipe is of another version, so no image can be embedded"
    for name, read, problem in (
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
            run.notes.append(f"{problem} ({error}).")


def _numbers(directory):
    return [
        {k: v for k, v in line.items() if isinstance(v, int | float)}
        for line in directory.read_history()
        if "step" in line
    ]


@dataclass(frozen=True, eq=False)
class Method:
    """Runs that differ only in their seed; named by what their names share."""

    name: str
    runs: tuple[ReadRun, ...]

    @property
    def recipe(self) -> dict[str, Any]:
        """The settings of the first run."""
        return self.runs[0].settings["recipe"]

    def searches(self, searched: dict[str, Searched]) -> list[Searched]:
        """Those of its runs that could be searched."""
        return [searched[r.name] for r in self.runs if r.name in searched]


def methods_of(runs: Sequence[ReadRun]) -> list[Method]:
    """Groups runs that differ only in their seed, in the order given."""
    groups: dict[str, list[ReadRun]] = {}
    for run in runs:
        groups.setdefault(run.settings_but_seed, []).append(run)
    methods: list[Method] = []
    for group in groups.values():
        group.sort(key=lambda run: run.settings["recipe"].get("seed", 0))
        name = group[0].name
        if len(group) > 1:
            start = os.path.commonprefix([run.name for run in group])
            start = re.sub(r"[-_,./ ]+(seed[=-]?)?\d*$", "", start)
            taken = [method.name for method in methods]
            name = name if start in ("", *taken) else start
        methods.append(Method(name, tuple(group)))
    return methods


@dataclass(frozen=True)
class Score:
    """A mean over queries, and its 95 % interval where there is one."""

    mean: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Row:
    """Scores of a method, and its gains over `base`, by measure."""

    method: Method
    scores: dict[str, Score]
    base: Method | None = None
    gains: dict[str, Score] = field(default_factory=dict)


def score_rows(
    methods: Sequence[Method],
    searched: dict[str, Searched],
    notes: list[str],
) -> list[Row]:
    """Scores each method, and compares it with the first query by query.

    Intervals are over classes and seeds; without a search there is none.
    """
    base, *others = methods
    rows = [Row(base, _scores(base, searched))]
    for method in others:
        gains = _gains(method, base, searched, notes)
        rows.append(Row(method, _scores(method, searched), base, gains))
    return rows


def _gains(method, base, searched, notes):
    searches, others = method.searches(searched), base.searches(searched)
    # Fewer trainings of one are each compared with several of the other.
    count = max(map(len, (searches, others))) if searches and others else 0
    pairs = list(
        islice(zip(cycle(searches), cycle(others), strict=False), count)
    )
    if not all(a.images.is_same(b.images) for a, b in pairs):
        notes.append(
            f"{method.name} and {base.name} are scored on different images, "
            "so they are not compared query by query."
        )
        return {}
    first = [search for search, _ in pairs]
    return {
        name: _interval(
            [a.by_query[name] - b.by_query[name] for a, b in pairs], first
        )
        for name in MEASURES
        if pairs
    }


def _scores(method, searched):
    """Scores of a method's searches; without one, of `scores.json`."""
    searches = method.searches(searched)
    if searches:
        return {
            name: _interval([s.by_query[name] for s in searches], searches)
            for name in MEASURES
        }
    written = {
        name: [(run.scores or {}).get(name) for run in method.runs]
        for name in MEASURES
    }
    numbers = {
        name: [x for x in values if isinstance(x, int | float)]
        for name, values in written.items()
    }
    return {
        name: Score(float(np.mean(values)) if values else None)
        for name, values in numbers.items()
    }


def _interval(values, searches):
    import keras_gsp as gsp

    zeros = [0 * scores for scores in values]
    classes = [s.images.labels[: s.images.num_queries] for s in searches]
    try:
        paired = gsp.metrics.paired_difference(values, zeros, classes)
    except ValueError:  # A single class has no interval.
        return Score(float(np.nanmean(np.concatenate(values))))
    return Score(paired["difference"], paired["low"], paired["high"])


def headline(rows: Sequence[Row]) -> Row | None:
    """Returns the row the page is about: the best one with a baseline."""
    known = [row for row in rows if _map(row) is not None]
    compared = [row for row in known if row.gains]
    return max(compared or known, key=_map, default=None)


def _map(row):
    return row.scores["map_at_r"].mean


def verdict(rows: Sequence[Row]) -> list[str]:
    """Returns the `verdict` of the best run, and the gain of `headline`."""
    row = headline(rows)
    if row is None:
        return ["There are no test scores yet."]
    best = max((r for r in rows if _map(r) is not None), key=_map)
    name = best.method.name
    text = (best.method.runs[0].scores or {}).get("verdict")
    if text is None:
        text = (
            f"{name} reaches a MAP@R of {100 * _map(best):.1f} % on classes "
            "that were not trained with; the raw features were not scored."
        )
    else:
        text = text.replace("this run", name) if len(rows) > 1 else text
        text = f"{text[:1].upper()}{text[1:].rstrip('.')}."
    return [text, _gain(row)] if row.gains else [text]


def _gain(row):
    gain = row.gains["map_at_r"]
    interval = ""
    if gain.low is not None:
        ends = f"{100 * gain.low:+.1f} to {100 * gain.high:+.1f}"
        interval = f", 95 % interval {ends}"
    return (
        f"{row.method.name} differs from {row.base.name} by "
        f"{100 * gain.mean:+.1f} points of MAP@R{interval}."
    )
