"""Tabulate scores with intervals, and paired differences of methods.

Runs that differ only in their seed are one method.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from training.reports.run_reading import ReadRun
from training.reports.searched import Searched

MEASURES = {
    "map_at_r": "MAP@R",
    "precision_at_1": "P@1",
    "precision_at_r": "P@R",
}


@dataclass(frozen=True)
class Method:
    """Runs of one recipe; the name is that of the first run."""

    name: str
    runs: tuple[ReadRun, ...]


def methods_of(runs: list[ReadRun]) -> list[Method]:
    """Groups runs that differ only in their seed, in the order given."""
    groups: dict[str, list[ReadRun]] = {}
    for run in runs:
        groups.setdefault(run.settings_but_seed, []).append(run)
    methods = []
    for group in groups.values():
        group.sort(key=lambda run: run.settings["recipe"].get("seed", 0))
        name = group[0].name
        if len(group) > 1:
            name = f"{name} and {len(group) - 1} more"
        methods.append(Method(name, tuple(group)))
    return methods


def score_rows(
    methods: list[Method], searched: dict[str, Searched]
) -> list[dict[str, Any]]:
    """Returns one row for each method and side of its data set.

    Test scores have a 95 % interval over classes and seeds for runs in
    `searched`, which maps a run's name to its search. Validation scores are
    the best of the learning curve. Rows are dicts with `method`, `number` (of
    the method), `side`, `runs`, and `cells`: for each measure a dict of
    `mean`, `low` and `high`, each perhaps None.
    """
    rows = []
    for number, method in enumerate(methods):
        found = [searched[r.name] for r in method.runs if r.name in searched]
        cells = _written_cells(method)
        if found:
            cells = [
                _interval([one.by_query[measure] for one in found], found)
                for measure in MEASURES
            ]
        best = [
            max(run.history, key=lambda line: line.get("val_map_at_r", -1.0))
            for run in method.runs
            if run.history
        ]
        curves = [
            _mean_alone([line.get(f"val_{measure}") for line in best])
            for measure in MEASURES
        ]
        for side, count, of_side in (
            ("test", len(found) or len(method.runs), cells),
            *_sizes(method),
            ("validation", len(best), curves),
        ):
            if any(cell["mean"] is not None for cell in of_side):
                row = {"method": method.name, "number": number, "side": side}
                rows.append(row | {"runs": count, "cells": of_side})
    return rows


def _sizes(method):
    """Yields side, runs and cells of cut embeddings, and beside a teacher."""
    scores = method.runs[0].scores or {}
    for name in scores:
        size = name.removeprefix("map_at_r_")
        if size != name:
            cells = _written_cells(method, f"_{size}")
            side = f"first {size}" if size.isdecimal() else size
            yield f"test, {side}", len(method.runs), cells


def _written_cells(method, ending=""):
    """The means of `scores.json` of a method's runs."""
    return [
        _mean_alone([written_score(run, m + ending) for run in method.runs])
        for m in MEASURES
    ]


def difference_rows(
    methods: list[Method], searched: dict[str, Searched], notes: list[str]
) -> list[dict[str, Any]]:
    """Compares each method with the first, query by query.

    Methods that searched different images get a sentence in `notes` instead
    of a row, a dict with `method`, `number`, `against`, `measure`, `runs`,
    `mean`, `low` and `high`.
    """
    found = []
    for number, method in enumerate(methods):
        own = [searched[r.name] for r in method.runs if r.name in searched]
        if own:
            found.append((number, method.name, own))
    rows = []
    for number, name, own in found[1:]:
        _, first, others = found[0]
        pairs = list(zip(own, others, strict=False))
        if not all(_is_same_search(one, other) for one, other in pairs):
            notes.append(
                f"{name} and {first} are scored on different images, so they "
                "are not compared query by query."
            )
            continue
        for measure, title in MEASURES.items():
            gains = [
                one.by_query[measure] - other.by_query[measure]
                for one, other in pairs
            ]
            rows.append(
                {"method": name, "number": number, "against": first}
                | {"measure": title, "runs": len(pairs)}
                | _interval(gains, [one for one, _ in pairs])
            )
    return rows


def written_score(run: ReadRun, measure: str) -> float | None:
    """Returns a score of `scores.json`."""
    value = (run.scores or {}).get(measure)
    if isinstance(value, int | float) and np.isfinite(value):
        return float(value)
    return None


def _interval(values, searched):
    """Mean over queries, with an interval over classes and seeds."""
    import keras_gsp as gsp

    zeros = [np.where(np.isnan(scores), np.nan, 0.0) for scores in values]
    classes = [s.images.labels[: s.images.num_queries] for s in searched]
    try:
        found = gsp.metrics.paired_difference(values, zeros, classes)
    except ValueError:  # A single class has no interval.
        return _mean_alone(np.concatenate(values).tolist())
    low, high = found["low"], found["high"]
    return {"mean": found["difference"], "low": low, "high": high}


def _mean_alone(values):
    known = [value for value in values if value is not None]
    mean = float(np.nanmean(known)) if known else None
    return {"mean": mean, "low": None, "high": None}


def _is_same_search(one, other):
    return (
        one.images.num_queries == other.images.num_queries
        and one.images.names == other.images.names
        and np.array_equal(one.images.labels, other.images.labels)
    )
