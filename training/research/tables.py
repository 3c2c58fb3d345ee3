"""Prints a study as Markdown: `python -m training.research.tables runs/emoji`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from training.research.results.published_results import (
    read_published_results,
    shipped_results,
)
from training.research.results.study_results import study_results
from training.research.results.study_table import study_tables


@dataclass(frozen=True)
class TablesCommand:
    """Prints the cells of a study in the papers' layout."""

    folder: Annotated[Path, tyro.conf.Positional]
    """Folder of a study, or of one of its cells."""
    published: Path | Literal["shipped", "none"] = "shipped"
    """Numbers that papers print, to stand beside ours: those in the
    repository, none, or a CSV file of one's own; columns dataset, loss,
    method, part (single, average, concatenated), measure (precision_at_1,
    precision_at_r, map_at_r) and percent, and where known protocol, backbone,
    embedding_size, deviation and source."""


def study_table(folder: Path | str, published: Path | str = "shipped") -> str:
    """Markdown table of a study, finished or not, percentages.

    A row for each loss and method; beside each number the published one,
    where it is known.

    Args:
        folder: A study's folder, or one cell's.
        published: `"shipped"`, `"none"`, or a CSV file of published results;
            see `read_published_results`.

    Returns:
        The table, one for each protocol, with a line on how weights were
        chosen.

    Raises:
        FileNotFoundError: no finished model, or no such file.
        ValueError: a file of published results that cannot be meant.
    """
    known = None
    if published == "shipped":
        known = shipped_results()
    elif published != "none":
        known = read_published_results(published)
    return study_tables(study_results(folder), known)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    command = tyro.cli(
        TablesCommand,
        prog="python -m training.research.tables",
        description=__doc__,
        args=arguments,
    )
    try:
        print(study_table(command.folder, command.published))
    except (FileNotFoundError, ValueError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
