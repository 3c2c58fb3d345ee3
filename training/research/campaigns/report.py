"""What every campaign does alike: its record, with size, seed and date."""

import datetime
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from training.research.results.records import (
    Table,
    benchmark_record,
    command_line,
    write_record,
)


def keep_campaign(
    path: Path,
    name: str,
    title: str,
    about: str,
    command: Any,
    tables: Sequence[Table],
) -> None:
    """Writes the record that a campaign's page is made of.

    Args:
        path: `docs/results/NAME.json` for a page.
        name: The campaign's module in this folder.
        title: Title of the page.
        about: What is done and what is compared, paragraphs.
        command: The command's options, a dataclass.
        tables: What came of it.
    """
    now = datetime.datetime.now(datetime.UTC)
    record = benchmark_record(
        title,
        tables,
        command=command_line(f"training.research.campaigns.{name}", command),
        about=" ".join(about.split()),
        settings=asdict(command) | {"date": now.date().isoformat()},
        load=os.getloadavg()[0],
    )
    write_record(path, record | {"kind": "campaign"})


def facts_table(record: dict[str, Any], title: str = "") -> Table:
    """A table of one number, or of several words, a line."""
    rows = [[name.replace("_", " "), _said(v)] for name, v in record.items()]
    return Table(("", ""), rows, title=title)


def _said(value):
    if isinstance(value, dict):
        return ", ".join(f"{name} {one}" for name, one in value.items())
    return f"{value:,}" if isinstance(value, int) else str(value)
