"""Shows runs in the browser: `python -m training.report runs/NAME`.

One file that opens from disk, without network: scores with intervals, paired
differences of several runs, neighbors, maps, prototypes, near duplicates.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class ReportCommand:
    """Writes one HTML file about one run, or several beside each other."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Run directories; those that differ in their seed alone are one
    method, the others are compared with the first."""
    output: Path | None = None
    """HTML file; by default report.html in the run's folder, of several
    runs beside the first one's."""
    map: Literal["pca", "tsne", "umap"] = "pca"
    """A second map of the embeddings beside PCA; umap needs umap-learn."""
    images: int = 10_000
    """Images looked at, about; of more, whole classes drawn at random."""
    points: int = 2_000
    """Images on the map, about."""
    projector: bool = False
    """Write the embeddings for TensorBoard's projector too, in a folder
    beside the page."""
    parquet: bool = False
    """Write embeddings and small images to a Parquet file for each run too,
    beside the page; needs pyarrow."""

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError("`runs` must name a run. Received: none.")
        for name in ("images", "points"):
            if getattr(self, name) < 2:
                raise ValueError(
                    f"`{name}` must be at least 2. "
                    f"Received: {name}={getattr(self, name)}."
                )

    @property
    def target(self) -> Path:
        """The file that is made."""
        if self.output is not None:
            return self.output
        several = len({path.resolve() for path in self.runs}) > 1
        folder = self.runs[0].parent if several else self.runs[0]
        return folder / "report.html"


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    try:
        command = tyro.cli(
            ReportCommand,
            prog="python -m training.report",
            description=__doc__,
            args=arguments,
        )
        written, notes = write_report(command)
    except (ImportError, OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    for note in notes:
        print(f"note: {note}")
    for path in written:
        print(f"{path}: written")


def write_report(command: ReportCommand) -> tuple[list[Path], list[str]]:
    """Makes the page and what else was asked for.

    Returns:
        The files and folders that were written, and sentences on what of the
        runs is missing.

    Raises:
        FileExistsError: at the target lies a file that is no report.
        ValueError: not one of the folders is a run.
    """
    _check_target(command.target)
    # TensorFlow takes seconds to import: not for an error or for --help.
    from tqdm import tqdm

    from training.reports.report_page import ReportSettings, make_report
    from training.runs.run_directory import write_text

    with tqdm(desc="report", bar_format="{desc}: {elapsed}") as bar:
        report = make_report(
            command.runs,
            ReportSettings(command.images, command.points, command.map),
            say=lambda words: bar.set_description(f"report: {words}"),
        )
    command.target.parent.mkdir(parents=True, exist_ok=True)
    write_text(command.target, report.html)
    written = [command.target]
    if command.projector or command.parquet:
        written += _write_embeddings(command, report)
    return written, report.notes


def _write_embeddings(command, report):
    from training.reports.embedding_files import (
        embedding_table,
        write_parquet,
        write_projector,
    )

    written = []
    for name, searched in report.searched.items():
        table = embedding_table(searched)
        stem = command.target.with_name(
            f"{command.target.stem}-{Path(name).name}"
        )
        if command.projector:
            folder = stem.with_name(f"{stem.name}-projector")
            write_projector(folder, *table)
            written.append(folder)
        if command.parquet:
            file = stem.with_name(f"{stem.name}.parquet")
            write_parquet(file, *table)
            written.append(file)
    return written


def _check_target(path):
    from training.reports.run_reading import REPORT_MARK

    if path.is_dir():
        raise FileExistsError(
            f"`output` must be a file. Received: {path}, which is a folder."
        )
    if path.exists():
        with path.open("rb") as file:
            start = file.read(200)
        if REPORT_MARK.encode() not in start:
            raise FileExistsError(
                "`output` must be new, or an earlier report. "
                f"Received: {path}, which is neither."
            )


if __name__ == "__main__":
    main()
