"""Markdown tables and the numbers in them: one way to write both."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np


def markdown_table(
    headings: Sequence[Any],
    rows: Iterable[Sequence[Any]],
    *,
    num_left: int | None = None,
) -> str:
    """Returns a Markdown table.

    Args:
        headings: One word per column.
        rows: Cells, as many as headings.
        num_left: Columns that are words; those behind it are numbers and
            stand at the right. None: all stand at the left.
    """
    left = len(headings) if num_left is None else num_left
    rules = ["---"] * left + ["---:"] * (len(headings) - left)
    lines = [headings, rules, *rows]
    return "\n".join("| " + " | ".join(map(str, r)) + " |" for r in lines)


def mean_and_deviation(values: Iterable[float]) -> dict[str, Any]:
    """Mean and sample standard deviation, and the numbers themselves.

    Args:
        values: One number for each seed, fold or repetition.

    Returns:
        Dict of `mean`, `std`, which divides by the count less one and is
        None for a single number, and `values`.
    """
    numbers = np.asarray(list(values), "float64")
    deviation = float(numbers.std(ddof=1)) if len(numbers) > 1 else None
    return {
        "mean": float(numbers.mean()),
        "std": deviation,
        "values": numbers.tolist(),
    }


def spread(
    measure: Mapping[str, Any], factor: float = 1.0, digits: int = 4
) -> str:
    """`0.1234 ± 0.0056`, or the mean alone where there is no deviation.

    Args:
        measure: What `mean_and_deviation` returned.
        factor: 100 for percentages.
        digits: Digits after the point.
    """
    text = f"{factor * measure['mean']:.{digits}f}"
    if measure["std"] is None:
        return text
    return f"{text} ± {factor * measure['std']:.{digits}f}"
