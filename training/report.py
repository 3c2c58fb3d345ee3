"""Shows runs in the browser: `python -m training.report runs/NAME`.

Writes one file that opens from disk, without network. It begins with the
verdict and one table; three good and three bad queries, learning curves and
settings follow.
"""

import io
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from tqdm import tqdm

from training.recipes.recipe import Recipe
from training.runs.command_line import run_command
from training.runs.run_directory import RunDirectory
from training.runs.verdict import interval

# First line of a report; a file without it is not replaced.
REPORT_MARK = "<!-- keras_gsp report -->"
RUNS = "*/settings.json"
MEASURES = {"map_at_r": "MAP@R", "precision_at_1": "P@1"}
FACTS = (
    "Scores are of classes that were not trained with, in percent, with 95 % "
    "intervals over classes."
)
# Settings on which the images depend, before they are cropped.
READ = "dataset", "data_dir", "data_arguments", "decisions"


@dataclass(frozen=True)
class ReportCommand:
    """Writes one HTML file about one run, or several side by side."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Run directories; each is compared with the first."""
    output: Path | None = None
    """HTML file; by default report.html in the run's folder, of several
    runs beside the first one's."""

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError("`runs` must name a run. Received: none.")

    @property
    def target(self) -> Path:
        """The file to write."""
        if self.output is not None:
            return self.output
        first, *others = self.runs
        folder = first.parent if others else first
        return folder / "report.html"


@dataclass
class ReadRun:
    """What could be read of a run, with a note for what is missing."""

    name: str
    directory: RunDirectory
    settings: dict[str, Any]
    history: list[dict[str, float]] = field(default_factory=list)
    scores: dict[str, Any] = field(default_factory=dict)
    searched: Any = None
    """Its `reports.searched.Searched`, if its images could be embedded."""
    notes: list[str] = field(default_factory=list)
    gain: dict[str, Any] | None = None
    """Paired difference to the first run, in MAP@R."""

    @property
    def map_at_r(self) -> float | None:
        """That of `scores.json`."""
        return self.scores.get("map_at_r")


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    run_command("report", __doc__, ReportCommand, _report, arguments)


def _report(command):
    for note in write_report(command):
        print(f"note: {note}")
    address = shlex.quote(command.target.absolute().as_uri())
    print(f"{command.target}: written\nNext: python -m webbrowser {address}")


def write_report(command: ReportCommand) -> list[str]:
    """Reads runs and writes their page.

    Returns sentences on what is missing. Raises `FileExistsError` if the
    target is no report, `FileNotFoundError` for a folder without a run.
    """
    path = command.target
    is_report = path.is_file() and REPORT_MARK in path.read_text("utf-8")[:200]
    if path.exists() and not is_report:
        raise FileExistsError(
            "`output` must be new, or an earlier report. "
            f"Received: {path}, which is neither."
        )
    from training.reports.page import Section, write_page

    runs = read_runs(command.runs)
    _search(runs)
    compare(runs)
    lead, *sentences = verdict(runs)
    sections = [
        Section("Scores", [*sentences, FACTS], _score_table(runs)),
        *_pictured(runs),
        *_curves(runs),
        Section("Settings", (), _settings(runs), is_text=True),
    ]
    notes = [f"{run.name}: {note}" for run in runs for note in run.notes]
    if notes:
        sections.append(Section("Notes", notes))
    title = f"Report on {', '.join(run.name for run in runs)}"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_page(path, REPORT_MARK, title, lead, sections)
    return notes


def read_runs(paths: Sequence[Path]) -> list[ReadRun]:
    """Reads runs, named by folder or, where equal, by path.

    A run may be unfinished. `FileNotFoundError` for a folder without one.
    """
    runs = []
    names = [path.resolve().name for path in paths]
    for path, name in zip(paths, names, strict=True):
        directory = RunDirectory(path)
        if not directory.settings.exists():
            beside = sorted(x.parent.name for x in path.parent.glob(RUNS))
            raise FileNotFoundError(
                f"`runs` must be run directories. Received: {path}. There "
                f"are in {path.parent}: {', '.join(beside) or 'none'}."
            )
        name = name if names.count(name) == 1 else str(path)
        run = ReadRun(name, directory, directory.read_settings()["recipe"])
        run.history = [x for x in directory.read_history() if "step" in x]
        if directory.is_finished:
            run.scores = directory.read_scores()
        else:
            run.notes.append(
                "There is no scores.json: the run is not finished. The "
                "command that started it continues it."
            )
        runs.append(run)
    return runs


def _search(runs):
    """Searches the images of every run that can; reads each data set once."""
    from training.reports.searched import read_scored, search_all
    from training.runs.scoring import load_encoder

    read: dict[Any, Any] = {}
    for run in tqdm(runs, desc="Embedding the images of runs"):
        classes = run.directory.read_classes()
        try:
            recipe = Recipe.from_settings(run.settings)
            encoder = load_encoder(run.directory)
            key = str([recipe.settings[name] for name in READ] + [classes])
            if key not in read:
                read[key] = read_scored(recipe, classes)
            splits, notes = read[key]
            run.searched = search_all(encoder, recipe, splits)
        except (ValueError, OSError, ImportError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            run.notes.append(f"No image could be embedded: {reason[:400]}")
            continue
        run.notes += notes
        now = float(np.nanmean(run.searched.scores))
        if run.map_at_r is not None and abs(now - run.map_at_r) > 1e-3:
            run.notes.append(
                f"scores.json has a MAP@R of {run.map_at_r:.4f}, the encoder "
                f"now reaches {now:.4f}: the images or the encoder have "
                "changed."
            )


def compare(runs: Sequence[ReadRun]) -> None:
    """Compares each run with the first, query by query."""
    from keras_gsp.metrics import paired_difference

    base = runs[0].searched
    for run in runs[1:]:
        if run.searched is None or base is None:
            continue
        if run.searched.images is not base.images:
            run.notes.append(
                f"It is scored on different images than {runs[0].name}, so "
                "they are not compared query by query."
            )
        elif len(np.unique(base.classes)) > 1:
            scores = run.searched.scores, base.scores
            run.gain = paired_difference(*scores, base.classes)


def _best(runs):
    """The run of the highest MAP@R, None without scores."""
    scored = [run for run in runs if run.map_at_r is not None]
    return max(scored, key=lambda run: run.map_at_r, default=None)


def verdict(runs: Sequence[ReadRun]) -> list[str]:
    """Returns the `verdict` of the best run, and gains over the first."""
    best = _best(runs)
    if best is None:
        return ["There are no test scores yet."]
    text = best.scores.get("verdict")
    if text is None:
        text = (
            f"{best.name} reaches a MAP@R of "
            f"{100 * best.map_at_r:.1f} % on classes that were not trained "
            "with; the raw features were not scored."
        )
    else:
        text = text.replace("this run", best.name) if len(runs) > 1 else text
        text = f"{text[:1].upper()}{text[1:].rstrip('.')}."
    gains = [
        f"{run.name} differs from {runs[0].name} by {interval(run.gain)} "
        "points of MAP@R."
        for run in runs
        if run.gain is not None
    ]
    return [text, *gains]


def _score_table(runs):
    """The raw features of the runs, then each run and its gain."""

    def row(name, scores, gain="–"):
        numbers = [scores.get(measure) for measure in MEASURES]
        cells = ["–" if x is None else f"{100 * x:.1f}" for x in numbers]
        if "lower_map_at_r" in scores:
            ends = (100 * scores[f"{x}_map_at_r"] for x in ("lower", "upper"))
            cells[0] += " [{:.1f}, {:.1f}]".format(*ends)
        return [name, *cells, gain]

    table = [["run", *MEASURES.values(), "gain in MAP@R"]]
    raw = next((run.scores["raw"] for run in runs if "raw" in run.scores), None)
    if raw is not None:
        table.append(row("raw features, not trained", raw[raw["best"]]))
        table.append(row("whitened, not trained", raw["whitened"]))
    for run in runs:
        gain = "–" if run.gain is None else interval(run.gain)
        table.append(row(run.name, run.scores, gain))
    if all(run.gain is None for run in runs):
        return [line[:-1] for line in table]
    return table


def _pictured(runs):
    """Good and bad queries of the first and of the best run."""
    from training.reports.page import Section, drawn_address
    from training.reports.searched import chosen_queries, draw_queries

    compared = [run for run in runs if run.gain is not None]
    best = _best(compared or runs) or runs[0]
    if best.searched is None:
        return []
    shown = [runs[0], best] if compared else [best]
    names = [run.name for run in shown]
    sections = []
    chosen = chosen_queries([run.searched for run in shown])
    for heading, queries in chosen.items():
        if queries:
            pictures = [
                (drawn_address(draw_queries(run.searched, queries)), run.name)
                for run in shown
            ]
            text = (
                f"Queries on the left; {' above, '.join(names)}"
                f"{' below' if len(names) > 1 else ''}. A solid frame is the "
                "query's class, a dashed one another. A veil covers what is "
                "not pooled, where the pooling has weights."
            )
            sections.append(Section(heading, [text], pictures=pictures))
    return sections


def _curves(runs):
    """One picture of the losses and validation scores of all runs."""
    from training.pictures.palette import PROTOTYPES, picture
    from training.reports.page import Section, drawn_address

    if not any(run.history for run in runs):
        return []
    drawn = io.BytesIO()
    with picture(drawn, 1, 2, figsize=(11, 3.6)) as axes:
        for axis, name in zip(axes[0], ("loss", "val_map_at_r"), strict=True):
            axis.set(xlabel="step", title=name)
            for number, run in enumerate(runs):
                lines = [line for line in run.history if name in line]
                axis.plot(
                    [line["step"] for line in lines],
                    [line[name] for line in lines],
                    color=PROTOTYPES[number % len(PROTOTYPES)],
                    marker=".",
                    label=run.name,
                )
        axis.legend(fontsize=9)
    address = drawn_address(drawn)
    return [Section("Learning curves", pictures=[(address, "curves")])]


def _settings(runs):
    """Settings of the recipes, those that differ first."""
    names = dict.fromkeys(name for run in runs for name in run.settings)
    rows = [
        [name, *(str(run.settings.get(name, "–")) for run in runs)]
        for name in names
    ]
    rows.sort(key=lambda row: len({*row[1:]}) == 1)
    return [["setting", *(run.name for run in runs)], *rows]


if __name__ == "__main__":
    main()
