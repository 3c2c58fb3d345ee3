"""One published choice: values of recipe fields, and where they are printed."""

from dataclasses import dataclass

SMALL = ("cub", "cars")
LARGE = ("sop", "inshop")


@dataclass(frozen=True)
class Setting:
    """Values of recipe fields, and where they are printed.

    Args:
        values: Recipe field -> value.
        source: File of the reference code, or paper and section.
        datasets: The data sets for which it holds.
    """

    values: dict
    source: str
    datasets: tuple[str, ...] = SMALL + LARGE
