"""Results that papers print, from a list that whoever has the paper writes."""

import csv
from pathlib import Path

from training.recipes.recipe import PAIR_LOSSES, PROXY_LOSSES
from training.recipes.studies import METHODS

COLUMNS = ("dataset", "loss", "method", "part", "measure", "percent")


def read_published_results(path, *, parts, measures) -> dict:
    """Reads published results from a CSV file.

    Its header names the columns `dataset`, `loss`, `method`, `part`,
    `measure` and `percent`; others, such as the table a number comes from,
    are ignored.

    Args:
        path: The file.
        parts: Known parts of a table, such as `single`.
        measures: Known measures, such as `map_at_r`.

    Returns:
        (data set, loss, method) -> part -> measure -> percentage.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a missing column, an unknown word, a number outside
            [0, 100] or a second one for the same place, with its line.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"`published` must be a CSV file. Received: {path}."
        )
    words = {
        "loss": (*PAIR_LOSSES, *PROXY_LOSSES),
        "method": tuple(METHODS),
        "part": tuple(parts),
        "measure": tuple(measures),
    }
    found = {}
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
            for name, known in words.items():
                if row[name] not in known:
                    raise ValueError(
                        f"`{name}` must be one of {', '.join(known)}. "
                        f"Received: {name}={row[name]!r} ({where})."
                    )
            cell = row["dataset"], row["loss"], row["method"]
            part = found.setdefault(cell, {}).setdefault(row["part"], {})
            if row["measure"] in part:
                raise ValueError(f"{where}: a second number for this place.")
            part[row["measure"]] = _percent(row["percent"], where)
    return found


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


def shipped_results() -> dict:
    """The papers' results that stand beside ours by default."""
    return {}
