"""Tables of images: to drop and to relabel, as a person decided."""

import csv
import os
from collections import Counter
from pathlib import Path

DECISIONS = "keep", "relabel", "drop"


def decided(
    rows: list[dict[str, str]], root: str | Path, decisions: str | Path
) -> list[dict[str, str]]:
    """Returns the images that decisions leave, with their labels, in order.

    `rows` are dicts of `path` and `label`; the paths of `decisions`, a CSV
    file, are relative to `root`.
    """

    def refuse(expectation, received):
        raise ValueError(
            f"{decisions} must have {expectation}. Received: {received}."
        )

    left = {os.path.abspath(row["path"]): row for row in rows}
    classes = {row["label"] for row in rows}
    given = table(decisions, ("path", "decision", "label"), "decisions")
    names = [os.path.abspath(Path(root) / row["path"]) for row in given]
    if unknown := [name for name in names if name not in left]:
        some = f"{len(unknown):,} of {len(names):,} paths of images"
        refuse("known images", f"{some} that are not there: {unknown[:5]}")
    counts = Counter(names)
    for name, row in zip(names, given, strict=True):
        decision, label = row["decision"], row["label"]
        if counts[name] > 1:
            refuse("one decision for an image", f"two for {name}")
        if decision not in DECISIONS:
            refuse(f"one of {', '.join(DECISIONS)}", decision)
        if decision == "drop":
            del left[name]
        elif decision == "relabel":
            if label not in classes:
                refuse("a class of the images to relabel with", label)
            left[name] = left[name] | {"label": label}
    if not left:
        refuse("an image to keep", f"{len(rows)} dropped")
    return list(left.values())


def table(
    path: str | Path, columns: tuple[str, ...], name: str
) -> list[dict[str, str]]:
    """Reads a CSV file that has these columns; `name` is for the error."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise FileNotFoundError(
            f"`{name}` must be a CSV file. Received: {name}={str(path)!r}, "
            "which is no file."
        )
    with file.open(newline="", encoding="utf-8-sig") as lines:
        reader = csv.DictReader(lines)
        found, rows = reader.fieldnames or [], list(reader)
    if not set(columns) <= set(found):
        words = f"{', '.join(columns[:-1])} and {columns[-1]}"
        raise ValueError(
            f"{file} must have the columns {words}. Received: columns {found}."
        )
    return rows
