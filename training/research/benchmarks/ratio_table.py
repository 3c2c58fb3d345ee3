"""Times of contenders as ratios to the first of them, as one table."""

from dataclasses import dataclass, field

import numpy as np

from training.research.results.markdown import markdown_table
from training.research.results.records import Table


@dataclass(frozen=True)
class Measurement:
    """One contender's repeated times, and whatever else was measured.

    Attributes:
        name: what was run.
        seconds: one time for each repetition.
        facts: further columns by heading, already formatted.
    """

    name: str
    seconds: tuple[float, ...]
    facts: dict[str, str] = field(default_factory=dict)


def ratio_rows(measurements: list[Measurement]) -> list[list[str]]:
    """Returns headings and rows: median time, ratio, spread, further facts.

    The ratio is that of medians to the first measurement's; the spread is the
    range of the ratios of the single repetitions to that median.
    """
    headings = list(dict.fromkeys(h for m in measurements for h in m.facts))
    rows = [["", "seconds", "ratio", "spread", *headings]]
    reference = np.median(measurements[0].seconds)
    for measurement in measurements:
        ratios = np.array(measurement.seconds) / reference
        rows.append(
            [
                measurement.name,
                f"{np.median(measurement.seconds):.4g}",
                f"{np.median(ratios):.2f}",
                f"{ratios.min():.2f}-{ratios.max():.2f}",
                *(measurement.facts.get(heading, "") for heading in headings),
            ]
        )
    return rows


def ratio_table(measurements: list[Measurement]) -> str:
    """Returns `ratio_rows` as a Markdown table."""
    headings, *rows = ratio_rows(measurements)
    return markdown_table(headings, rows)


def ratios(
    measurements: list[Measurement], title: str = "", first: str = ""
) -> Table:
    """Returns `ratio_rows` as a table of a record, with all times in it.

    Args:
        measurements: the first is what the others are compared with.
        title: what was measured.
        first: heading of the contenders' names.
    """
    headings, *rows = ratio_rows(measurements)
    seconds = {one.name: list(one.seconds) for one in measurements}
    numbers = {"seconds": seconds}
    return Table([first, *headings[1:]], rows, title=title, numbers=numbers)
