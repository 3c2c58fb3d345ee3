"""Scores with intervals, and what one method has over another.

Runs that differ in their seed alone are one method.
"""

import math
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
    """Runs of one recipe.

    Args:
        name: Name of the run, of several with their number.
        runs: The runs, by seed.
    """

    name: str
    runs: tuple[ReadRun, ...]


def methods_of(runs: list[ReadRun]) -> list[Method]:
    """Groups runs that differ in their seed alone, in the order given."""
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
    """One row for each method and measure, with a 95 % interval.

    Args:
        methods: Of `methods_of`.
        searched: Run's name -> its search, for runs that have one.

    Returns:
        Dicts with `method`, `measure`, `runs`, `mean`, and `low`, `high` or
        None where only the written score is known.
    """
    rows = []
    for method in methods:
        found = [searched[r.name] for r in method.runs if r.name in searched]
        for measure, name in MEASURES.items():
            row: dict[str, Any] = {"method": method.name, "measure": name}
            if found:
                scores = [one.by_query[measure] for one in found]
                zeros = [np.where(np.isnan(s), np.nan, 0.0) for s in scores]
                row |= _interval(scores, zeros, found)
                row |= {"runs": len(found), "mean": row["difference"]}
            else:
                values = [
                    value
                    for run in method.runs
                    if (value := written_score(run, measure)) is not None
                ]
                if not values:
                    continue
                row |= {"runs": len(values), "mean": float(np.mean(values))}
                row |= {"low": None, "high": None}
            rows.append(row)
    return rows


def difference_rows(
    methods: list[Method], searched: dict[str, Searched], notes: list[str]
) -> list[dict[str, Any]]:
    """How far each method is from the first, query by query.

    Args:
        methods: Of `methods_of`.
        searched: Run's name -> its search.
        notes: Gets a sentence where two cannot be compared.

    Returns:
        Dicts with `method`, `against`, `measure`, `runs`, `difference`,
        `low`, `high`.
    """
    found = {
        method.name: [
            searched[r.name] for r in method.runs if r.name in searched
        ]
        for method in methods
    }
    named = [name for name, of_method in found.items() if of_method]
    rows = []
    for name in named[1:]:
        count = min(len(found[name]), len(found[named[0]]))
        ones, others = found[name][:count], found[named[0]][:count]
        if any(
            not _is_same_search(a, b) for a, b in zip(ones, others, strict=True)
        ):
            notes.append(
                f"{name} and {named[0]} are scored on different images, so "
                "there is no difference query by query."
            )
            continue
        for measure, title in MEASURES.items():
            row = _interval(
                [one.by_query[measure] for one in ones],
                [other.by_query[measure] for other in others],
                ones,
            )
            rows.append(
                row
                | {"method": name, "against": named[0]}
                | {"measure": title, "runs": count}
            )
    return rows


def written_score(run: ReadRun, measure: str) -> float | None:
    """A score of `scores.json`, of a protocol its models' mean."""
    scores = run.scores or {}
    value = scores.get(measure)
    for part in ("single", "average"):
        if value is None and isinstance(scores.get(part), dict):
            value = scores[part].get(measure, {}).get("mean")
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    return None


def _interval(scores, others, searched):
    import keras_gsp as gsp

    classes = [s.images.labels[: s.images.num_queries] for s in searched]
    try:
        found = gsp.metrics.paired_difference(scores, others, classes)
    except ValueError:  # a single class: a mean, and no interval
        values = np.concatenate(scores) - np.concatenate(others)
        return {
            "difference": float(np.nanmean(values)),
            "low": None,
            "high": None,
        }
    return {name: found[name] for name in ("difference", "low", "high")}


def _is_same_search(one, other):
    return (
        one.images.num_queries == other.images.num_queries
        and one.images.names == other.images.names
        and np.array_equal(one.images.labels, other.images.labels)
    )
