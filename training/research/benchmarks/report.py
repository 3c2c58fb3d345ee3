"""What every benchmark does alike: command line, printing, its record."""

import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from training.research.results.records import (
    Table,
    benchmark_record,
    command_line,
    write_record,
)


@dataclass(frozen=True, kw_only=True)
class BenchmarkSettings:
    """Options that every benchmark has; its own come in a subclass."""

    json: Path | None = None
    """File that keeps the tables, `docs/results/NAME.json` for a page."""
    smoke: bool = False
    """Tiny sizes: seconds, to see that everything runs."""

    def small(self) -> "BenchmarkSettings":
        """The same benchmark with the sizes of a smoke test."""
        return self


Settings = TypeVar("Settings", bound=BenchmarkSettings)


def run_benchmark(
    name: str,
    title: str,
    about: str | None,
    settings: Settings,
    measure: Callable[[Settings], Iterable[Table]],
) -> list[Table]:
    """Measures, prints every table when it is there, keeps them all.

    Args:
        name: The benchmark's module in this folder.
        title: Title of the page.
        about: The module's docstring, the page's text; commands in it are
            left out, the page says what was run.
        settings: Its options; those of `small` with `smoke`.
        measure: Yields the tables, made from times side by side.

    Returns:
        The tables.
    """
    command = command_line(f"training.research.benchmarks.{name}", settings)
    # `small` answers in its own class.
    sizes: Any = settings.small() if settings.smoke else settings
    load = os.getloadavg()[0]
    tables = []
    for table in measure(sizes):
        heading = f"{table.title}\n\n" if table.title else ""
        print(f"\n{heading}{table.markdown()}", flush=True)
        tables.append(table)
    if settings.json is not None:
        record = benchmark_record(
            title,
            tables,
            command=command,
            about=_without_commands(about or ""),
            settings=asdict(sizes),
            load=load,
        )
        write_record(settings.json, record)
        print(f"\n{settings.json}")
    return tables


def _without_commands(text):
    paragraphs = text.strip().split("\n\n")
    return "\n\n".join(
        paragraph for paragraph in paragraphs if paragraph[:4] != "    "
    )
