"""Takes records in and writes the pages: `python -m training.research.results`."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from training.research.protocols.kept_study import ENDING, keep_study
from training.research.results.experiment_pictures import draw_pictures
from training.research.results.pages import DOCS, write_pages
from training.research.results.records import for_a_page, write_record
from training.research.results.study_results import study_results


@dataclass(frozen=True)
class ResultsCommand:
    """Writes every page of results from its JSON file.

    With folders of studies, or JSON files of experiments and benchmarks, takes
    these in first.
    """

    sources: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """What to take in: `runs/emoji`, `runs/experiments/sweep.json`."""
    docs: Path = DOCS
    """Folder of records and pages."""


def take_in(source: Path, docs: Path) -> Path:
    """Copies a study's or an experiment's numbers to the pages' folder.

    Beside a study's record goes what it is made of; see `keep_study`.

    Raises:
        FileNotFoundError: no such file, or no finished model of a study.
        ValueError: a file that is no record.
    """
    if source.is_dir():
        record, name = study_results(source), source.name
        keep_study(source, docs / f"{name}{ENDING}")
    elif not source.is_file():
        raise FileNotFoundError(
            "`sources` must be folders of studies or JSON files. Received: "
            f"{source}."
        )
    else:
        record, name = _json_of(source), source.stem
        if not isinstance(record, dict) or "kind" not in record:
            raise ValueError(
                "`sources` must be records that a study, an experiment or a "
                f"benchmark wrote. Received: {source}, which has no `kind`."
            )
    path = docs / f"{name}.json"
    write_record(path, for_a_page(record))
    if record["kind"] == "experiment":
        draw_pictures(name, record, docs)
    return path


def _json_of(source):
    try:
        return json.loads(source.read_text())
    except ValueError as error:
        raise ValueError(
            "`sources` must be records that a study, an experiment or a "
            f"benchmark wrote. Received: {source}, which is no JSON."
        ) from error


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    command = tyro.cli(
        ResultsCommand,
        prog="python -m training.research.results",
        description=__doc__,
        args=arguments,
    )
    try:
        for source in command.sources:
            print(take_in(source, command.docs))
        for path in write_pages(command.docs):
            print(path)
    except (ValueError, FileNotFoundError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
