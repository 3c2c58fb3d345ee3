"""Tabulate scores with intervals, and compare each method with its baseline.

Runs that differ only in their seed are one method. The baseline of a method
is the same network with average pooling, where it is among the runs.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import numpy as np

from training.reports.run_reading import ReadRun
from training.reports.searched import Searched

MEASURES = {"map_at_r": "MAP@R", "precision_at_1": "P@1"}
MEASURES |= {"precision_at_r": "P@R"}
SHARED = ("dataset", "data_dir", "backbone", "frozen", "loss", "steps")
"""Settings that a method and its baseline have in common."""


@dataclass(frozen=True, eq=False)
class Method:
    """Runs of one recipe. The name is what their folders begin with."""

    name: str
    runs: tuple[ReadRun, ...]

    @property
    def recipe(self) -> dict[str, Any]:
        """The settings of the first run."""
        return self.runs[0].settings["recipe"]

    @property
    def averages(self) -> bool:
        """Whether the network pools by averaging."""
        return self.recipe.get("pooling", "gap") == "gap"

    def searches(self, searched: dict[str, Searched]) -> list[Searched]:
        """Those of its runs that could be searched."""
        names = [run.name for run in self.runs]
        return [searched[name] for name in names if name in searched]

    def mean(self, measure: str) -> float | None:
        """Mean over the runs of a score of `scores.json`, None without."""
        found = [(run.scores or {}).get(measure) for run in self.runs]
        known = [one for one in found if isinstance(one, int | float)]
        return float(np.mean(known)) if known else None


def methods_of(runs: list[ReadRun]) -> list[Method]:
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


def baselines(methods: Sequence[Method]) -> list[Method | None]:
    """Chooses the method that each is compared with, or None.

    It is the same network with average pooling and the fewest other
    settings; methods that pool by averaging have none. Where no method has
    one, all are compared with the first.
    """
    found = [_same_network(one, methods) for one in methods]
    if any(found):
        return found
    return [None, *[methods[0]] * (len(methods) - 1)]


def _same_network(method, methods):
    own = method.recipe

    def distance(other):
        names = {*own, *other.recipe} - {"seed"}
        return sum(own.get(n) != other.recipe.get(n) for n in names)

    others = [
        one
        for one in methods
        if one.averages and all(own.get(n) == one.recipe.get(n) for n in SHARED)
    ]
    return None if method.averages else min(others, key=distance, default=None)


def score_rows(
    methods: list[Method], searched: dict[str, Searched], notes: list[str]
) -> list[dict[str, Any]]:
    """Returns one row for each method.

    Dicts with `name`, `number`, `runs`, `is_baseline`, and `scores`: for each
    measure a dict of `mean`, `low` and `high`, the 95 % interval over classes
    and seeds, which is None without a search. With a baseline that searched
    the same images, `against`, `base` (its MAP@R) and `gains` like `scores`.
    """
    bases, rows = baselines(methods), []
    for number, (method, base) in enumerate(zip(methods, bases, strict=True)):
        is_baseline = method in bases and base is None
        row: dict[str, Any] = {"name": method.name, "number": number}
        row |= {"runs": len(method.runs), "is_baseline": is_baseline}
        row |= {"scores": _scores(method, searched), "gains": {}}
        if base is not None:
            row["against"] = base.name
            row["base"] = _scores(base, searched)["map_at_r"]["mean"]
            row["gains"] = _gains(method, base, searched, notes)
        rows.append(row)
    return rows


def _gains(method, base, searched, notes):
    own, others = method.searches(searched), base.searches(searched)
    # Fewer trainings of one are each compared with several of the other.
    count = max(len(own), len(others)) if own and others else 0
    pairs = list(islice(zip(cycle(own), cycle(others), strict=False), count))
    if not all(_is_same_search(a.images, b.images) for a, b in pairs):
        notes.append(
            f"{method.name} and {base.name} are scored on different images, "
            "so they are not compared query by query."
        )
        return {}
    return {
        measure: _interval(
            [a.by_query[measure] - b.by_query[measure] for a, b in pairs],
            [one for one, _ in pairs],
        )
        for measure in MEASURES
        if pairs
    }


def _is_same_search(one, other):
    return (
        one.num_queries == other.num_queries
        and one.names == other.names
        and np.array_equal(one.labels, other.labels)
    )


def _scores(method, searched):
    """Mean and interval of each measure; of `scores.json` without a search."""
    found = method.searches(searched)
    return {
        measure: _interval([one.by_query[measure] for one in found], found)
        if found
        else {"mean": method.mean(measure), "low": None, "high": None}
        for measure in MEASURES
    }


def _interval(values, searched):
    """Mean over queries, with an interval over classes and seeds."""
    import keras_gsp as gsp

    zeros = [0 * scores for scores in values]
    classes = [s.images.labels[: s.images.num_queries] for s in searched]
    try:
        found = gsp.metrics.paired_difference(values, zeros, classes)
    except ValueError:  # A single class has no interval.
        mean = float(np.nanmean(np.concatenate(values)))
        return {"mean": mean, "low": None, "high": None}
    low, high = found["low"], found["high"]
    return {"mean": found["difference"], "low": low, "high": high}
