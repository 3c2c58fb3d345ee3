"""Trains GAP, GSP and GSP+ZSR on glyphs, compares, exports, searches, draws.

`make demo`, or `python -m training.demo`. Everything lands in one folder; a
demo that was stopped goes on where it was, finished trainings are kept. At
the end stands a report of all trainings, which opens where there is a desktop.
"""

import os
import sys
import time
import webbrowser
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from training.recipes.named import named
from training.runs.run_directory import RunDirectory, write_text
from training.runs.train_run import ERRORS, train_run

METHODS = {
    "GAP": {"pooling": "gap"},
    "GSP": {"pooling": "gsp"},
    "GSP+ZSR": {"pooling": "gsp", "regularizer": "zsr"},
}
MEASURES = {
    "map_at_r": "MAP@R",
    "precision_at_1": "P@1",
    "precision_at_r": "P@R",
}
SMOKE = {"steps": 40, "steps_per_evaluation": 20}


@dataclass(frozen=True)
class DemoCommand:
    """Trains average pooling, GSP, and GSP with its zero-shot regularizer."""

    runs: Path = Path("runs/demo")
    """Folder for everything that the demo makes."""
    seeds: int = 1
    """Trainings of each method, at least 1; several show how far they differ
    by chance."""
    steps: int = 1800
    """Steps of each training, a multiple of 200."""
    smoke: bool = False
    """One training of 40 steps each: does it run at all?"""
    open: bool = True
    """Open the report in the browser, where there is a desktop."""

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise ValueError(
                f"`seeds` must be 1 or more. Received: seeds={self.seeds}."
            )

    @property
    def recipes(self) -> dict:
        """(method, seed) -> recipe, seeds in turn."""
        budget: dict[str, Any] = SMOKE if self.smoke else {"steps": self.steps}
        return {
            (method, seed): named("glyphs", loss="proxy-nca", **choices).with_(
                seed=seed, **budget
            )
            for seed in range(1 if self.smoke else self.seeds)
            for method, choices in METHODS.items()
        }


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    try:
        run_demo(
            tyro.cli(
                DemoCommand, prog="python -m training.demo", args=arguments
            )
        )
    except ERRORS as error:
        sys.exit(f"error: {error}")


def run_demo(command: DemoCommand) -> None:
    """Trains, compares, exports, searches and draws."""
    start = time.monotonic()
    folder = command.runs / "smoke" if command.smoke else command.runs
    # TensorFlow takes seconds to import: not for an error or for --help.
    from training.datasets import glyphs
    from training.reports.demo_outputs import draw_pictures, export_and_search

    splits = glyphs.load()
    directories = {}
    for (method, seed), recipe in command.recipes.items():
        # Short, for the report: gap-0, gsp-0, gsp-zsr-0.
        name = method.lower().replace("+", "-")
        directory = RunDirectory(folder / f"{name}-{seed}")
        directories[method, seed] = directory
        _train(recipe, splits, directory, f"{method}, seed {seed}")
    print(f"\n{_report(directories, splits, folder)}")
    export_and_search(best_run(directories), splits, folder)
    draw_pictures(directories, splits, folder)
    page = write_demo_report(directories, folder)
    if command.open and not command.smoke and has_desktop():
        webbrowser.open(page.absolute().as_uri())
    seconds = time.monotonic() - start
    print(f"{seconds:.0f} seconds in all. Everything is in {folder}/")


def best_run(directories: dict) -> RunDirectory:
    """The run with the best validation score; the test has no say."""
    return max(
        directories.values(),
        key=lambda run: max(e["val_map_at_r"] for e in run.read_history()),
    )


def write_demo_report(directories: dict, folder: Path) -> Path:
    """Writes the report of all trainings.

    Returns:
        The page.
    """
    from training.reports.report_page import ReportCommand, write_report

    runs = tuple(directory.path for directory in directories.values())
    page = folder / "report.html"
    _, notes = write_report(ReportCommand(runs=runs, output=page))
    for note in notes:
        print(f"note: {note}")
    print(f"{page}: the report, one file that any browser opens")
    return page


def has_desktop(
    platform: str = sys.platform, environment: Mapping[str, str] = os.environ
) -> bool:
    """Whether a browser's window could be seen.

    Args:
        platform: As `sys.platform`.
        environment: As `os.environ`.
    """
    if environment.get("CI") or environment.get("SSH_CONNECTION"):
        return False
    if platform in ("darwin", "win32"):
        return True
    return any(environment.get(n) for n in ("DISPLAY", "WAYLAND_DISPLAY"))


def results_table(directories: dict) -> str:
    """Markdown table: mean and standard deviation over seeds."""
    rows = []
    for method in METHODS:
        scores = [
            directory.read_scores()
            for (of_method, _), directory in directories.items()
            if of_method == method
        ]
        cells = [
            _spread([one[measure] for one in scores]) for measure in MEASURES
        ]
        rows.append([method, *cells, len(scores)])
    headings = ["method", *MEASURES.values(), "seeds"]
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join("| " + " | ".join(map(str, r)) + " |\n" for r in lines)


def _spread(values):
    """Mean, and sample standard deviation of more than one value."""
    if len(values) == 1:
        return f"{values[0]:.3f}"
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}"


def _train(recipe, splits, directory, label):
    if not directory.is_finished:
        train_run(recipe, splits, directory, label=label)
        return
    if directory.read_recipe() != recipe:
        raise FileExistsError(
            "The demo's folder must hold runs of the demo's own recipes. "
            f"Received: {directory.path}, a finished run of another one. "
            "Choose another --runs."
        )
    print(f"{label}: finished before, kept")


def _report(directories, splits, folder):
    table = results_table(directories)
    write_text(folder / "results.md", table)
    return (
        f"Retrieval among {len(splits.test)} images of "
        f"{splits.test.num_classes} unseen letters, mean and standard "
        f"deviation over seeds:\n\n{table}"
    )


if __name__ == "__main__":
    main()
