"""Images to drop and labels to change, as a person decided."""

import csv
import os
from pathlib import Path

KEEP, RELABEL, DROP = DECISIONS = "keep", "relabel", "drop"
_NAMED = 5


def decided(
    rows: list[dict[str, str]], root: str | Path, decisions: str | Path
) -> list[dict[str, str]]:
    """Returns the images that decisions leave, with their labels, in order.

    Args:
        rows: dicts of `path` and `label`, one for each image.
        root: folder that the paths of the decisions are relative to.
        decisions: CSV file with the columns `path`, `decision`, `label`.

    Raises:
        FileNotFoundError: no such file.
        ValueError: missing columns, an unknown decision, a path that is not
            among the images or is decided twice, a new label that is no
            class, or nothing left.
    """
    left = {_absolute(root, row["path"]): row for row in rows}
    known = {row["label"] for row in rows}
    given = _rows(decisions)
    names = [_absolute(root, row["path"]) for row in given]
    unknown = [name for name in names if name not in left]
    if unknown:
        raise ValueError(
            f"`decisions` must be about images of {root}. Received: "
            f"{len(unknown):,} of {len(names):,} paths in {decisions} that "
            f"are not there, first {unknown[:_NAMED]}."
        )
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        _refuse(decisions, "one decision for an image", f"two for {twice}")
    for name, row in zip(names, given, strict=True):
        decision, label = row["decision"], row["label"]
        if decision not in DECISIONS:
            _refuse(decisions, f"one of {', '.join(DECISIONS)}", decision)
        if decision == RELABEL and label not in known:
            _refuse(decisions, "a class of the images to relabel with", label)
        if decision == RELABEL:
            left[name] = left[name] | {"label": label}
        elif decision == DROP:
            del left[name]
    if not left:
        _refuse(decisions, "an image to keep", f"{len(rows)} dropped")
    return list(left.values())


def _rows(decisions):
    file = Path(decisions).expanduser()
    if not file.is_file():
        raise FileNotFoundError(
            "`decisions` must be a CSV file. "
            f"Received: decisions={str(decisions)!r}, which is no file."
        )
    with file.open(newline="", encoding="utf-8-sig") as lines:
        reader = csv.DictReader(lines)
        columns = set(reader.fieldnames or ())
        rows = list(reader)
    if not {"path", "decision", "label"} <= columns:
        raise ValueError(
            f"{file} must have the columns path, decision and label. "
            f"Received: columns {sorted(columns)}."
        )
    return rows


def _absolute(root, path):
    return os.path.normpath(os.path.join(root, path))


def _refuse(decisions, expectation, received):
    raise ValueError(
        f"{decisions} must have {expectation}. Received: {received}."
    )
