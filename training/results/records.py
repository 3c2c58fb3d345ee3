"""Measured facts in small JSON files: what every page of numbers is made of.

| kind | written by | its own keys |
| --- | --- | --- |
| study | `python -m training.results runs/STUDY` | `rows` |
| experiment | `python -m training.experiments.NAME` | `results` |
| benchmark | `keep_table` | `headings`, `rows` |
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from training.runs.environment import environment
from training.runs.run_directory import write_text


def plain(content: Any) -> Any:
    """Turns arrays, NumPy numbers and paths, at any depth, into JSON's own."""
    if isinstance(content, Mapping):
        return {str(key): plain(value) for key, value in content.items()}
    if isinstance(content, np.ndarray | np.generic):
        return plain(content.tolist())
    if isinstance(content, list | tuple):
        return [plain(value) for value in content]
    if isinstance(content, Path):
        return str(content)
    return content


def record_text(record: Mapping[str, Any]) -> str:
    """JSON with one line for each fact and each row, so that changes show.

    Numbers are rounded to 6 digits behind the point: a page shows fewer.
    """
    lines = []
    for key, value in _rounded(plain(record)).items():
        name = json.dumps(key)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            rows = ",\n".join(f"  {_compact(row)}" for row in value)
            lines.append(f"{name}: [\n{rows}\n ]")
        else:
            lines.append(f"{name}: {_compact(value)}")
    return "{\n " + ",\n ".join(lines) + "\n}\n"


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Writes a record whole or not at all; makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, record_text(record))


def keep_table(
    path: Path,
    name: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    command: str,
    about: str = "",
    num_left: int = 1,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Keeps a table, a benchmark's for example, as the record of a page.

    Args:
        path: JSON file to write.
        name: Title of the page.
        headings: One word per column.
        rows: Cells as they are shown.
        command: What was run.
        about: A paragraph that stands above the table.
        num_left: Columns that are words.
        settings: The command's settings.
    """
    write_record(
        path,
        {
            "kind": "benchmark",
            "title": name,
            "command": command,
            "about": about,
            "settings": settings or {},
            "environment": environment(),
            "num_left": num_left,
            "headings": list(headings),
            "rows": [list(row) for row in rows],
        },
    )


def _compact(value):
    return json.dumps(value, ensure_ascii=False)


def _rounded(value):
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return round(value, 6) if isinstance(value, float) else value
