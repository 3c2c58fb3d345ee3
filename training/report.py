"""Shows runs in the browser: `python -m training.report runs/NAME`.

Writes one file that opens from disk, without network. It begins with the
verdict and one table; three good and three bad queries, learning curves,
classes and settings follow.
"""

import io
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from tqdm import tqdm

from training.runs.command_line import run_command

# First line of a report; a file without it is not replaced.
REPORT_MARK = "<!-- keras_gsp report -->"


@dataclass(frozen=True)
class ReportCommand:
    """Writes one HTML file about one run, or several side by side."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Run directories; those that differ only in their seed are one method.
    Each method is compared with the first."""
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
        is_one = len({path.resolve() for path in self.runs}) == 1
        folder = self.runs[0] if is_one else self.runs[0].parent
        return folder / "report.html"


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
    target is no report, `ValueError` if none of the folders is a run.
    """
    path = command.target
    is_report = path.is_file() and REPORT_MARK in path.read_text("utf-8")[:200]
    if path.exists() and not is_report:
        raise FileExistsError(
            "`output` must be new, or an earlier report. "
            f"Received: {path}, which is neither."
        )
    from training.reports import methods as grouping
    from training.reports.page import Section, write_page

    runs, notes = grouping.read_runs(command.runs)
    if not runs:
        raise ValueError(
            "A report needs at least one run directory. Received: "
            + " ".join(notes)
        )
    methods, searched = grouping.methods_of(runs), _searches(runs)
    rows = grouping.score_rows(methods, searched, notes)
    lead, *sentences = grouping.verdict(rows)
    sentences.append(_compared(methods, searched))
    shown = _shown(grouping.headline(rows), searched)
    sections = [
        Section("Scores", sentences, _score_table(rows)),
        *_pictured(shown),
        *_curves(methods),
        *_classes(shown),
        Section("Settings", (), _settings(methods), is_text=True),
    ]
    notes += [f"{run.name}: {note}" for run in runs for note in run.notes]
    if notes:
        sections.append(Section("Notes", notes))
    title = f"Report on {', '.join(method.name for method in methods)}"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_page(path, REPORT_MARK, title, lead, sections)
    return notes


def _searches(runs):
    """Searches the images of every run that can; reads each data set once."""
    from training.reports.searched import scored_images, search_all
    from training.runs.scoring import load_encoder

    images: dict[Any, Any] = {}
    searched = {}
    for run in tqdm(runs, desc="Embedding the images of runs"):
        if run.recipe is None:
            continue
        classes = run.directory.read_classes()
        key = run.recipe.images, str(classes)
        try:
            encoder = load_encoder(run.directory)
            if key not in images:
                images[key] = scored_images(run.recipe, classes)
            searched[run.name] = search_all(encoder, images[key])
        except (ValueError, OSError, ImportError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            run.notes.append(f"No image could be embedded: {reason[:400]}")
            continue
        run.notes += images[key].notes
        written = (run.scores or {}).get("map_at_r")
        now = float(np.nanmean(searched[run.name].by_query["map_at_r"]))
        if written is not None and abs(now - written) > 1e-3:
            run.notes.append(
                f"scores.json has a MAP@R of {written:.4f}, the encoder now "
                f"reaches {now:.4f}: the images or the encoder have changed."
            )
    return searched


def _compared(methods, searched):
    runs = sum(len(method.runs) for method in methods)
    text = f"Methods: {len(methods)}, runs: {runs}"
    if not searched:
        return f"{text}."
    images = next(iter(searched.values())).images
    classes = len(np.unique(images.labels[: images.num_queries]))
    seeds = "classes and seeds" if runs > len(methods) else "classes, one seed"
    return (
        f"{text}, data set: {images.splits.name}. Scores are of "
        f"{images.num_queries:,} queries of {classes:,} classes that were not "
        f"trained with, in percent, with 95 % intervals over {seeds}."
    )


def _score_table(rows):
    """The raw features of the runs, then each method and its gain."""
    from training.reports.methods import MEASURES, Score

    def text(score, sign=""):
        if score is None or score.mean is None:
            return "–"
        ends = ""
        if score.low is not None:
            ends = (
                f" [{100 * score.low:{sign}.1f}, {100 * score.high:{sign}.1f}]"
            )
        return f"{100 * score.mean:{sign}.1f}{ends}"

    table = [["method", *MEASURES.values(), "runs", "gain in MAP@R", "over"]]
    written = [run.scores or {} for row in rows for run in row.method.runs]
    raw = next((scores["raw"] for scores in written if "raw" in scores), None)
    if raw is not None:
        for name, key in (
            ("raw features", raw["best"]),
            ("whitened", "whitened"),
        ):
            scores = [
                text(Score(raw[key].get(measure))) for measure in MEASURES
            ]
            table.append([f"{name}, not trained", *scores, "–", "–", "–"])
    for row in sorted(rows, key=lambda row: bool(row.gains)):
        gain = text(row.gains.get("map_at_r"), "+")
        scores = [text(row.scores[name]) for name in MEASURES]
        base = row.base.name if row.gains else "–"
        runs = str(len(row.method.runs))
        table.append([row.method.name, *scores, runs, gain, base])
    return table


def _shown(row, searched):
    """Searches whose queries are shown: the baseline's, then the method's."""
    if row is None:
        return {}
    methods = [row.base, row.method] if row.gains else [row.method]
    searches = {m.name: m.searches(searched) for m in methods}
    return {name: found[0] for name, found in searches.items() if found}


def _pictured(shown):
    from training.reports.page import Section, drawn_address
    from training.reports.queries import chosen_queries, draw_queries

    if not shown:
        return []
    sections = []
    for kind, queries in chosen_queries(list(shown.values())).items():
        if queries:
            pictures = [
                (drawn_address(draw_queries(search, queries)), name)
                for name, search in shown.items()
            ]
            text = (
                f"Queries on the left; {' above, '.join(shown)}"
                f"{' below' if len(shown) > 1 else ''}. A solid frame is the "
                "query's class, a dashed one another. A veil covers what is "
                "not pooled, where the pooling has weights."
            )
            sections.append(Section(kind, [text], pictures=pictures))
    return sections


def _curves(methods):
    """One picture of the losses and validation scores of all runs."""
    from training.pictures.palette import PROTOTYPES, picture
    from training.reports.page import Section, drawn_address

    names = ("loss", "val_map_at_r")
    lines = [
        (
            number,
            method.name,
            [(x["step"], x[name]) for x in run.history if name in x],
            name,
        )
        for number, method in enumerate(methods)
        for run in method.runs
        for name in names
    ]
    if not any(points for *_, points, _ in lines):
        return []
    drawn = io.BytesIO()
    with picture(drawn, 1, 2, figsize=(11, 3.6)) as axes:
        for number, label, points, name in lines:
            axis = axes[0, names.index(name)]
            axis.set(xlabel="step", title=name)
            if points:
                color = PROTOTYPES[number % len(PROTOTYPES)]
                axis.plot(*zip(*points, strict=True), color=color, label=label)
        handles, labels = axes[0, 1].get_legend_handles_labels()
        unique = dict(zip(labels, handles, strict=True))
        axes[0, 1].legend(unique.values(), unique.keys(), fontsize=9)
    address = drawn_address(drawn)
    return [Section("Learning curves", pictures=[(address, "curves")])]


def _classes(shown):
    from training.reports.page import Section
    from training.reports.queries import MAX_CLASSES, class_rows

    if not shown:
        return []
    header = ["class", "images", *shown, "most often confused with"]
    text = f"MAP@R in percent, the worst first, at most {MAX_CLASSES} classes."
    table = [header, *class_rows(list(shown.values()))]
    return [Section("Classes", [text], table)]


def _settings(methods):
    """Settings of the recipes, those that differ first."""
    recipes = [method.recipe for method in methods]
    names = dict.fromkeys(name for recipe in recipes for name in recipe)
    rows = [
        [name, *(str(recipe.get(name, "–")) for recipe in recipes)]
        for name in names
        if name != "seed"
    ]
    rows.sort(key=lambda row: len({*row[1:]}) == 1)
    return [["setting", *(method.name for method in methods)], *rows]


if __name__ == "__main__":
    main()
