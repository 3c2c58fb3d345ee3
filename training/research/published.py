"""Numbers that the papers print, from `published.csv`."""

import csv
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("published.csv")
# Papers whose number counts where several print one: a method's own first.
_OWN = {"ccp": ("CCP", "thesis"), "xml": ("XML",), "xbm": ("GSP", "CCP")}
_ORDER = ("GSP", "CCP", "XML", "thesis")
# Tables whose numbers are no benchmark of their cell.
_NOT_COMPARED = ("screening", "prose")


def printed_number(dataset: str, loss: str, method: str) -> str:
    """MAP@R of one cell as a paper prints it, the mean of single models.

    `"GSP 26.48"`, or nothing where no paper prints the cell.
    """
    numbers = _numbers().get((dataset, loss, method), {})
    order = (*_OWN.get(method, ()), *_ORDER)
    source = min(
        numbers,
        key=lambda one: order.index(one) if one in order else len(order),
        default="",
    )
    return source and f"{source} {numbers[source]}"


@cache
def _numbers():
    """(data set, loss, method) -> source -> number."""
    numbers: dict[tuple[str, str, str], dict[str, str]] = {}
    with FILE.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if (
                row["measure"] == "map_at_r"
                and row["part"] in ("average", "single")
                and row["protocol"] != "conventional"
                and not row["cited"]
                and not any(word in row["table"] for word in _NOT_COMPARED)
            ):
                place = row["dataset"], row["loss"], row["method"]
                numbers.setdefault(place, {}).setdefault(
                    row["source"], row["percent"]
                )
    return numbers
