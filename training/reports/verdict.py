"""Say in sentences what runs show: the verdict, and what was compared."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from training.reports.score_table import Method
from training.reports.searched import Searched


def headline(rows: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Returns the row the page is about: the best one with a baseline."""
    known = [row for row in rows if _score(row) is not None]
    compared = [row for row in known if row["gains"]]
    return max(compared or known, key=_score, default=None)


def verdict(
    methods: Sequence[Method], rows: Sequence[dict[str, Any]]
) -> list[str]:
    """Returns the `verdict` of the best run, and the gain of `headline`."""
    row = headline(rows)
    if row is None:
        return ["There are no test scores yet."]
    best = max((one for one in rows if _score(one) is not None), key=_score)
    name = best["name"]
    said = (methods[best["number"]].runs[0].scores or {}).get("verdict")
    if said is None:
        said = (
            f"{name} reaches a MAP@R of {100 * _score(best):.1f} % on classes "
            "that were not trained with; the raw features were not scored."
        )
    else:
        if len(methods) > 1:
            said = said.replace("this run", name)
        said = f"{said[:1].upper()}{said[1:].rstrip('.')}."
    return [said, _gain(row, methods)] if row["gains"] else [said]


def _score(row):
    return row["scores"]["map_at_r"]["mean"]


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
    words = f"Methods: {len(methods)}, runs: {runs}"
    if not searched:
        return f"{words}."
    images = next(iter(searched.values())).images
    classes = len(np.unique(images.labels[: images.num_queries]))
    return (
        f"{words}, data set: {images.splits.name}. Scores are those of "
        f"{images.num_queries:,} query images; their classes, {classes:,}, "
        "were not trained with."
    )
