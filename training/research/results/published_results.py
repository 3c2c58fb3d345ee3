"""Results that papers print: in the repository, or in a list of one's own."""

import csv
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import get_args

from training.recipes import published
from training.recipes.recipe import (
    CLASSIFIER_LOSSES,
    PAIR_LOSSES,
    PROXY_LOSSES,
    Pooling,
)
from training.research.studies import METHODS

SHIPPED = Path(__file__).with_name("published.csv")
COLUMNS = ("dataset", "loss", "method", "part", "measure", "percent")
PARTS = ("single", "average", "concatenated")
MEASURES = ("precision_at_1", "precision_at_r", "map_at_r")
# What papers compare with and no recipe trains.
OTHER_LOSSES = (*CLASSIFIER_LOSSES, "-")
OTHER_METHODS = (
    "gem-gsp-zsr",
    "gmp-gsp-zsr",
    *("diml", "diva", "metrix", "proxyfewer", "s2sd"),
    *("proxy-based", "sample-based"),
)
WORDS = {
    "loss": (*PAIR_LOSSES, *PROXY_LOSSES, *OTHER_LOSSES),
    "method": tuple(
        dict.fromkeys(
            (
                *METHODS,
                *published.METHODS,
                *get_args(Pooling),
                *OTHER_METHODS,
            )
        )
    ),
    "part": PARTS,
    "measure": MEASURES,
}
# Tables whose numbers are no benchmark of their cell.
_NOT_COMPARED = ("screening", "prose")
# Whose numbers stand beside ours where several print them: a method's own
# paper first.
_OWN = {"ccp": ("CCP", "thesis"), "xml": ("XML",), "xbm": ("GSP", "CCP")}
_ORDER = ("GSP", "CCP", "XML", "thesis")


@dataclass(frozen=True)
class PublishedResult:
    """One printed number.

    Args:
        percent: The number, in [0, 100].
        source: Word of the document, "paper" where a list names none.
        protocol: `fair`, `conventional`, or None where a list does not say.
        backbone: Word of the backbone, or None.
        embedding_size: Width of the embedding, or None.
        deviation: One standard deviation, where printed.
    """

    percent: float
    source: str = "paper"
    protocol: str | None = None
    backbone: str | None = None
    embedding_size: int | None = None
    deviation: float | None = None


Place = tuple[str, str, str, str, str]


@dataclass(frozen=True)
class PublishedResults:
    """Printed numbers by their place in a table.

    Args:
        numbers: (data set, loss, method, part, measure) -> results.
    """

    numbers: dict[Place, list[PublishedResult]] = field(default_factory=dict)

    def find(
        self,
        place: Place,
        *,
        protocol: str | None = None,
        backbone: str | None = None,
        embedding_size: int | None = None,
    ) -> PublishedResult | None:
        """The number to stand beside one of ours, or None.

        Args:
            place: (data set, loss, method, part, measure).
            protocol: Ours; a number of another protocol is not compared.
            backbone: Ours, likewise.
            embedding_size: Ours, likewise.
        """
        ours = {
            "protocol": protocol,
            "backbone": backbone,
            "embedding_size": embedding_size,
        }
        order = (*_OWN.get(place[2], ()), *_ORDER)
        fitting = [
            result
            for result in self.numbers.get(place, ())
            if all(
                None in (value, getattr(result, name))
                or value == getattr(result, name)
                for name, value in ours.items()
            )
        ]
        return min(
            fitting,
            key=lambda r: (
                order.index(r.source) if r.source in order else len(order)
            ),
            default=None,
        )


def read_published_results(path: Path | str) -> PublishedResults:
    """Reads published results from a CSV file.

    Its header names the columns `dataset`, `loss`, `method`, `part`,
    `measure` and `percent`; `protocol`, `backbone`, `embedding_size`,
    `deviation` and `source` say more where they are there; others, such as
    the table a number comes from, are ignored.

    Args:
        path: The file.

    Returns:
        The numbers. A number that a table takes from another paper (column
        `cited`), and one of a screening table, is left out.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a missing column, an unknown word, a number outside
            [0, 100] or a second, other one for the same place, with its line.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"`published` must be a CSV file. Received: {path}."
        )
    found: dict[Place, list[PublishedResult]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        missing = [
            name for name in COLUMNS if name not in (reader.fieldnames or ())
        ]
        if missing:
            raise ValueError(
                f"{path} must have the columns {', '.join(COLUMNS)}. "
                f"Received: no {', '.join(missing)}."
            )
        for row in reader:
            where = f"{path}, line {reader.line_num}"
            place, result = _read(row, where)
            if row.get("cited") or any(
                word in (row.get("table") or "") for word in _NOT_COMPARED
            ):
                continue
            known = found.setdefault(place, [])
            if result not in known:
                _check_second(result, known, row, where)
                known.append(result)
    return PublishedResults(found)


@cache
def shipped_results() -> PublishedResults:
    """What the papers of the four methods print, from the repository."""
    return read_published_results(SHIPPED)


def _read(row, where):
    for name, known in WORDS.items():
        if row[name] not in known:
            raise ValueError(
                f"`{name}` must be one of {', '.join(known)}. "
                f"Received: {name}={row[name]!r} ({where})."
            )
    size, deviation = row.get("embedding_size"), row.get("deviation")
    result = PublishedResult(
        _percent(row["percent"], where),
        source=row.get("source") or "paper",
        protocol=row.get("protocol") or None,
        backbone=row.get("backbone") or None,
        embedding_size=int(size) if size else None,
        deviation=_percent(deviation, where) if deviation else None,
    )
    place = tuple(
        row[name] for name in ("dataset", "loss", "method", "part", "measure")
    )
    return place, result


def _check_second(result, known, row, where):
    """A list of one's own names a place once; the papers differ at times."""
    if not row.get("table") and any(
        (one.protocol, one.backbone) == (result.protocol, result.backbone)
        for one in known
    ):
        raise ValueError(f"{where}: a second number for this place.")


def _percent(text, where):
    try:
        percent = float(text)
    except (TypeError, ValueError):
        percent = float("nan")
    if not 0.0 <= percent <= 100.0:
        raise ValueError(
            "`percent` must be a number in [0, 100]. "
            f"Received: percent={text!r} ({where})."
        )
    return percent
