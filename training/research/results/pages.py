"""Pages made of records: docs/results/NAME.md from docs/results/NAME.json."""

import importlib
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from training.recipes.data import needed_sources
from training.research.protocols.kept_study import ENDING
from training.research.results.cost_drawing import cost_drawing
from training.research.results.curves_drawing import curves_drawing
from training.research.results.experiment_pictures import (
    draw_missing,
    pictures_of,
)
from training.research.results.published_results import shipped_results
from training.research.results.records import Table
from training.research.results.study_table import missing_cells, study_tables
from training.research.results.summary import summary, with_summary
from training.research.studies import STUDIES
from training.runs.run_directory import write_text

DOCS = Path(__file__).parents[3] / "docs" / "results"
README = DOCS.parents[1] / "README.md"
INDEX = "index.md"
POOLING = "pooling.json"
CURVES = "Validation MAP@R against training steps"
COSTS = "MAP@R gained over average pooling against time"
_MADE = (
    "<!-- Made by `python -m training.research.results` from {name}.json; change that "
    "file or the command, not this page. -->"
)


def pages(folder: Path = DOCS) -> dict[str, str]:
    """File name -> text of everything that the records of a folder make.

    Args:
        folder: Holds the records, `NAME.json`.

    Returns:
        A page for each record, the drawings that studies' pages show, and
        the index. An experiment's page shows the pictures that lie there.
    """
    made: dict[str, str] = {}
    titles = {}
    costs = None
    if (folder / POOLING).exists():
        costs = json.loads((folder / POOLING).read_text(encoding="utf-8"))
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        name = path.stem
        pictures = {}
        if record["kind"] == "study":
            pictures[f"{name}.svg"] = (CURVES, curves_drawing(record))
        if record.get("study", "").startswith("poolings") and costs:
            pictures[f"{name}-cost.svg"] = COSTS, cost_drawing(record, costs)
        pictures = {file: two for file, two in pictures.items() if two[1]}
        made |= {file: drawing for file, (_, drawing) in pictures.items()}
        if record["kind"] == "experiment":
            pictures = {
                one.name: (one.stem.replace("_", " "), "")
                for one in pictures_of(name, folder)
            }
        kept = folder / f"{name}{ENDING}"
        made[f"{name}.md"] = _page(
            name,
            record,
            pictures={file: words for file, (words, _) in pictures.items()},
            kept=kept.name if kept.exists() else "",
        )
        titles[name] = _title(name, record), record["kind"]
    made[INDEX] = _index(titles)
    return made


def write_pages(folder: Path = DOCS) -> list[Path]:
    """Writes what `pages` makes, and the table in the README.

    Returns:
        The files that have changed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    changed = draw_missing(folder)
    texts = {folder / name: text for name, text in pages(folder).items()}
    if folder == DOCS:
        texts[README] = readme()
    for path, text in texts.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)
            changed.append(path)
    return changed


def readme(folder: Path = DOCS) -> str:
    """The README with the table of what each method adds."""
    records = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in folder.glob("*.json")
    }
    place = folder.relative_to(README.parent).as_posix()
    return with_summary(
        README.read_text(encoding="utf-8"), summary(records), place
    )


def _title(name, record):
    return record.get("title") or name.replace("_", " ")


def _page(
    name: str,
    record: Mapping[str, Any],
    *,
    pictures: Mapping[str, str],
    kept: str,
) -> str:
    parts = [_MADE.format(name=name), f"# {_title(name, record)}"]
    match record["kind"]:
        case "study":
            parts += _study(record)
        case "experiment":
            parts += _experiment(record)
        case _:
            parts += _benchmark(record)
    parts += [f"![{words}]({file})" for file, words in pictures.items()]
    if kept:
        parts.append(
            f"Settings, evaluations and every query's score: [{kept}]({kept}). "
            f"`--kept docs/results/{kept}` goes on from these models."
        )
    parts.append(_environment(record))
    return "\n\n".join(part for part in parts if part) + "\n"


def _study(record):
    study = record["study"]
    steps = sorted({r["steps"] for r in record["rows"] if r["steps"]})
    words = " or ".join(f"{one:,}" for one in steps)
    return [
        f"    {study_command(study)}",
        record.get("about", ""),
        f"{words} steps; the weights with the best validation score are "
        "scored once on the test classes. `untrained` are the backbone's raw "
        "features, pooled by average and normalized. "
        + " ".join(filter(None, [_flattened(record), _changed(record)])),
        study_tables(record, shipped_results()),
        missing_cells(record),
    ]


def study_command(study: str) -> str:
    """What trains a study, with what has to be named by whoever runs it."""
    command = f"python -m training.research.study {study}"
    if study not in STUDIES:
        return command
    needed = {
        name
        for recipe in STUDIES[study].cells.values()
        for name in needed_sources(recipe)
        if getattr(recipe, name) is None
    }
    words = {"data_dir": "DATA", "backbone_weights": "WEIGHTS"}
    for name, word in words.items():
        if name in needed:
            command += f" --{name.replace('_', '-')} {word}"
    return command


def _flattened(record):
    """Whether training was long enough, from the curves alone."""
    curves = [
        np.asarray(row["curve"]["val_map_at_r"])
        for row in record["rows"]
        if row["steps"]
    ]
    curves = [curve for curve in curves if len(curve) >= 10]
    if not curves:
        return ""
    # Means of the last fifth of the evaluations and of the one before it.
    gains = [
        100 * (curve[-fifth:].mean() - curve[-2 * fifth : -fifth].mean())
        for curve, fifth in ((c, len(c) // 5) for c in curves)
    ]
    text = (
        "In the last fifth of training the rows' validation MAP@R changed by "
        f"{min(gains):+.1f} to {max(gains):+.1f} points, "
        f"{np.median(gains):+.1f} in the median"
    )
    last = [
        step == row["steps"]
        for row in record["rows"]
        for step in row.get("best_steps", ())
    ]
    if last:
        text += (
            f"; {sum(last)} of {len(last)} models were best at their last "
            "evaluation"
        )
    return f"{text}."


def _changed(record):
    """What the command does otherwise now, of a study set anew since."""
    known = STUDIES.get(record["study"])
    now = sorted({r.steps for r in known.cells.values()} - {0}) if known else []
    then = sorted({row["steps"] for row in record["rows"]} - {0})
    if not now or set(then) <= set(now):
        return ""
    words = " or ".join(f"{steps:,}" for steps in now)
    return f"Since this record the command trains for {words} steps."


def _experiment(record):
    name = record["experiment"]
    module = importlib.import_module(f"training.research.experiments.{name}")
    title, _, about = (module.__doc__ or "").strip().partition("\n")
    return [
        title,
        about.strip("\n"),
        module.table(record["results"]),
        _settings(record),
    ]


def _benchmark(record):
    parts = [f"    {record['command']}", record["about"]]
    for kept in record["tables"]:
        table = Table(**kept)
        parts += [f"## {table.title}" if table.title else "", table.markdown()]
    return [*parts, _settings(record), _machine(record)]


def _settings(record):
    said = ", ".join(f"{k} {v}" for k, v in record["settings"].items())
    return f"Settings: {said}." if said else ""


def _machine(record):
    """Times depend on the device, and on what else ran on it."""
    said = f"Measured on {record['device']}"
    if record["load"] is not None:
        # A campaign says it when it writes its record.
        when = "end" if record["kind"] == "campaign" else "beginning"
        said += f", load {record['load']:.1f} at its {when}"
    return f"{said}."


def _environment(record):
    found = record["environment"]
    packages = ", ".join(f"{k} {v}" for k, v in found["packages"].items())
    commit = found.get("commit") or "unknown"
    said = [
        one[:12] + (" with changes" if one.endswith("-dirty") else "")
        for one in record.get("commits") or [commit]
    ]
    word = "commits" if len(said) > 1 else "commit"
    return f"Python {found['python']}, {packages}; {word} {', '.join(said)}."


def _index(titles):
    parts = [
        "<!-- Made by `python -m training.research.results`. -->",
        "# Results",
    ]
    shown = Counter(title for title, _ in titles.values())
    for kind, heading in (
        ("study", "Studies"),
        ("experiment", "Experiments"),
        ("benchmark", "Benchmarks"),
        ("campaign", "Campaigns"),
    ):
        lines = [
            f"- [{title}{f' ({name})' * (shown[title] > 1)}]({name}.md)"
            for name, (title, own) in titles.items()
            if own == kind
        ]
        if lines:
            parts += [f"## {heading}", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"
