"""Measured facts in small JSON files: what every page of numbers is made of.

| kind | written by | its own keys |
| --- | --- | --- |
| study | `python -m training.research.results runs/STUDY` | `rows` |
| experiment | `python -m training.research.experiments.NAME --json FILE` | `results` |
| benchmark | `python -m training.research.benchmarks.NAME --json FILE` | `tables` |
| campaign | `python -m training.research.campaigns.NAME --json FILE` | `tables` |
"""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from training.research.results.markdown import markdown_table
from training.runs.environment import device_name, environment
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

    Numbers are rounded to 6 digits, behind the point or altogether: a page
    shows fewer.
    """
    lines = []
    for key, value in _rounded(plain(record)).items():
        name = json.dumps(key)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            rows = ",\n".join(f"  {_row(row)}" for row in value)
            lines.append(f"{name}: [\n{rows}\n ]")
        else:
            lines.append(f"{name}: {_compact(value)}")
    return "{\n " + ",\n ".join(lines) + "\n}\n"


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Writes a record whole or not at all; makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, record_text(record))


@dataclass(frozen=True)
class Table:
    """One table of a record.

    Attributes:
        headings: One word per column.
        rows: Cells as they are shown.
        num_left: Columns that are words; those behind it are numbers.
        title: What the table is about, where a record has several.
        numbers: What the cells were made of, for pictures and for others.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    num_left: int = 1
    title: str = ""
    numbers: Mapping[str, Any] | None = None

    def markdown(self) -> str:
        """The table as a page shows it."""
        return markdown_table(self.headings, self.rows, num_left=self.num_left)


def benchmark_record(
    title: str,
    tables: Iterable[Table],
    *,
    command: str,
    about: str = "",
    settings: Mapping[str, Any] | None = None,
    load: float | None = None,
) -> dict[str, Any]:
    """The record of a benchmark: its tables and what they depend on.

    Args:
        title: Title of the page.
        tables: In the order of the page.
        command: What was run, as a user would write it.
        about: Paragraphs that stand above the tables.
        settings: The command's settings.
        load: Processes that ran when it began, where that was asked.
    """
    record = {
        "kind": "benchmark",
        "title": title,
        "command": command,
        "about": about,
        "settings": settings or {},
        "environment": environment(),
        "device": device_name(),
        "load": load,
        "tables": [
            {key: part for key, part in vars(table).items() if part is not None}
            for table in tables
        ],
    }
    return for_a_page(record)


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
    """Keeps a single table as the record of a page.

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
    table = Table(headings, rows, num_left)
    write_record(
        path,
        benchmark_record(
            name, [table], command=command, about=about, settings=settings
        ),
    )


def command_line(module: str, settings: Any) -> str:
    """A command with the options that are not at their defaults.

    Args:
        module: As `python -m` takes it.
        settings: The command's dataclass; paths say nothing to a reader and
            are left out, of a string that is one its name stays.
    """
    words = [f"python -m {module}"]
    for field in fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, Path) or value == _default(field):
            continue
        option = field.name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        else:
            words.append(f"--{option}")
            words += [
                shlex.quote(str(_without_place(one))) for one in _flat(value)
            ]
    return " ".join(words)


def for_a_page(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record without the places and the machine's name.

    Of a path in the settings the name stays: where it lay says nothing to a
    reader, and neither do folders to write to.
    """
    kept = dict(record)
    if "settings" in kept:
        kept["settings"] = {
            name: _without_place(value)
            for name, value in kept["settings"].items()
            if name not in ("out", "json") and (name != "smoke" or value)
        }
    if "environment" in kept:
        kept["environment"] = {
            name: value
            for name, value in kept["environment"].items()
            if name != "platform"
        }
    return kept


def _without_place(value):
    is_place = isinstance(value, Path) or (
        isinstance(value, str) and "/" in value
    )
    return Path(value).name if is_place else value


def _default(field):
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default


def _flat(value):
    if not isinstance(value, list | tuple):
        return [value]
    return [one for part in value for one in _flat(part)]


def _row(row):
    """One line, but for a table within it, which has one for each row."""
    parts = []
    for key, value in row.items():
        text = _compact(value)
        if key == "rows" and value:
            lines = ",\n".join(f"    {_compact(one)}" for one in value)
            text = f"[\n{lines}]"
        parts.append(f"{_compact(key)}: {text}")
    return "{" + ", ".join(parts) + "}"


def _compact(value):
    return json.dumps(value, ensure_ascii=False)


def _rounded(value):
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    if isinstance(value, float):
        # Behind the point a time in microseconds would have few left.
        return round(value, 6) if abs(value) >= 0.1 else float(f"{value:.6g}")
    return value
