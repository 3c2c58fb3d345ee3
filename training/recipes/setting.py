"""One published choice: values of recipe fields, and where they are printed."""

from dataclasses import dataclass
from typing import Any

SMALL = ("cub", "cars")
LARGE = ("sop", "inshop")
DATASETS = SMALL + LARGE


@dataclass(frozen=True)
class Setting:
    """Values of recipe fields, and where they are printed.

    Args:
        values: Recipe field -> value.
        source: Paper and section, or file of the reference code where the
            papers leave the choice open.
        datasets: The data sets for which it holds.
    """

    values: dict[str, Any]
    source: str
    datasets: tuple[str, ...] = DATASETS
