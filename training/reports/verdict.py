"""Say in sentences what runs show: the verdict, and what was compared."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from training.reports.score_table import Method
from training.reports.searched import Searched


def headline(rows: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Returns the row the page is about: the best one with a baseline."""
    compared = [row for row in rows if row["gains"]] or rows
    known = [row for row in compared if row["own"]["map_at_r"] is not None]
    return max(known, key=lambda row: row["own"]["map_at_r"], default=None)


def verdict(
    methods: Sequence[Method], rows: Sequence[dict[str, Any]]
) -> list[str]:
    """Returns sentences, the first on raw features against the best run.

    It is the `verdict` of the run's `scores.json`, if there is one. Without
    raw scores there, an untrained run with average pooling takes their place.
    """
    row = headline(rows)
    if row is None:
        return ["There are no test scores yet."]
    own, name = row["own"]["map_at_r"], row["name"]
    method = next(one for one in methods if one.name == name)
    said = (method.runs[0].scores or {}).get("verdict")
    raw = _raw(method, methods)
    if isinstance(said, str):
        if len(methods) > 1:
            said = said.replace("this run", name)
        sentences = [f"{said[:1].upper()}{said[1:].rstrip('.')}."]
    elif raw is None:
        sentences = [
            f"{name} reaches a MAP@R of {_percent(own)} on classes that were "
            "not trained with; the raw features were not scored."
        ]
    else:
        words = "Training helped" if own > raw else "Training did not help"
        sentences = [
            f"{words}: the raw features reach a MAP@R of {_percent(raw)}, "
            f"{name} {_percent(own)}."
        ]
    if row["gains"]:
        sentences.append(_gain(row, methods))
    return sentences


def _raw(method, methods):
    """MAP@R of the backbone's own features, None if unknown.

    `raw` of `scores.json` is a number, or the scores by pooling with the name
    of the best one as `best`.
    """
    found = (method.runs[0].scores or {}).get("raw")
    if isinstance(found, dict):
        found = found.get(found.get("best"), {}).get("map_at_r")
    if isinstance(found, int | float):
        return found
    untrained = (
        one.mean("map_at_r")
        for one in methods
        if one.averages and one.recipe.get("steps") == 0 and one is not method
    )
    return next(untrained, None)


def _gain(row, methods):
    gain = row["gains"]["map_at_r"]
    base = next(one for one in methods if one.name == row["against"])
    network = base.name
    if base.averages:
        network = f"the same network with average pooling ({base.name})"
    interval = ""
    if gain["low"] is not None:
        ends = f"{100 * gain['low']:+.1f} to {100 * gain['high']:+.1f}"
        interval = f", 95 % interval {ends}"
    return (
        f"Against {network}, {row['name']} makes a difference of "
        f"{100 * gain['mean']:+.1f} points{interval}."
    )


def compared(methods: Sequence[Method], searched: dict[str, Searched]) -> str:
    """Says how many methods and runs there are, and what they search."""
    runs = sum(len(method.runs) for method in methods)
    words = f"{_count(len(methods), 'method')} in {_count(runs, 'run')}"
    if not searched:
        return f"{words}."
    images = next(iter(searched.values())).images
    classes = len(np.unique(images.labels[: images.num_queries]))
    return (
        f"{words} on {images.splits.name}. Scores are those of "
        f"{_count(images.num_queries, 'query image')} of "
        f"{_count(classes, 'class')} that were not trained with."
    )


def _percent(value):
    return f"{100 * value:.1f} %"


def _count(number, noun):
    many = noun + ("es" if noun.endswith("s") else "s")
    return f"{number:,} {noun if number == 1 else many}"
