"""A study's folder as one record: scores, rates, differences, activity."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from training.recipes.data import needed_sources
from training.research.published import printed_number
from training.research.report import Table, mean_and_deviation, spread
from training.research.studies import (
    BASELINES,
    METHODS,
    STUDIES,
    UNTRAINED,
    Study,
)
from training.research.study import MEASURES, QUERIES, Cell
from training.runs.progress import best_evaluation, solved_problems
from training.runs.run_directory import RunDirectory

HEADINGS = {
    "map_at_r": "MAP@R",
    "precision_at_r": "P@R",
    "precision_at_1": "P@1",
}
# Column of the history that shows a method at work -> how evaluations join.
ACTIVITY: dict[str, Callable[[list], Any]] = {
    "ccp_problem": max,
    "memory_fill": max,
    "regularizer_share": lambda values: float(np.mean(values)),
    "transport_ratio": lambda values: values[-1],
}
AT_WORK = {
    "ccp_problem": ("problems", "{:.0f}"),
    "ccp_scored": ("scored in", "{:.0f}"),
    "memory_fill": ("memory", "{:.0%}"),
    "regularizer_share": ("share", "{:.2g}"),
    "transport_ratio": ("ratio", "{:.2f}"),
    "weight_on_letter": ("weight on the letter", "{:.0%}"),
}


def study_record(folder: Path, name: str | None = None) -> dict[str, Any]:
    """Collects what a study, finished or not, has found so far.

    Args:
        folder: The study's folder.
        name: Name of the study; by default that of the folder.

    Returns:
        The record. Each of its `rows` is a cell: scores as mean and deviation
        over seeds, the learning rate and its curve, paired differences with
        95 % intervals, activity of the method, mean validation curve.

    Raises:
        FileNotFoundError: the folder has no finished run.
    """
    folder = Path(folder)
    name = name or folder.name
    study = STUDIES.get(name, Study(name, {}))
    cells = _cells(folder)
    if not cells:
        raise FileNotFoundError(
            "A study's folder must have a finished run. Received: "
            f"{folder}. Train one with `python -m training.research.study`."
        )
    words = sorted(cells, key=lambda one: _place(study, *one))
    queries = {one: _queries(cells[one]) for one in words}
    first = cells[words[0]][0]
    return {
        "kind": "study",
        "study": name,
        "title": study.title,
        "about": study.about,
        "command": study_command(name),
        "dataset": first.read_recipe().dataset,
        "environment": first.read_settings()["environment"],
        "rows": [_row(folder, one, cells[one], queries) for one in words],
    }


def study_command(name: str) -> str:
    """The command that trains a study, with the options that it needs."""
    command = f"python -m training.research.study {name}"
    recipes = STUDIES[name].cells.values() if name in STUDIES else ()
    needed = {
        option
        for recipe in recipes
        for option in needed_sources(recipe)
        if getattr(recipe, option) is None
    }
    for option, value in (
        ("data_dir", "DATA"),
        ("backbone_weights", "WEIGHTS"),
    ):
        if option in needed:
            command += f" --{option.replace('_', '-')} {value}"
    return command


def _cells(folder):
    """(row, method) -> finished runs, without those of a search."""
    found = {}
    for path in sorted(p for p in folder.glob("*.*") if p.is_dir()):
        row, _, method = path.name.rpartition(".")
        runs = [one.parent for one in sorted(path.glob(f"seed*/{QUERIES}"))]
        if runs:
            found[row, method] = [RunDirectory(run) for run in runs]
    return found


def _place(study, row, method):
    """The baseline, then row by row, methods as `METHODS` has them."""
    rows, methods = study.rows, [*METHODS, *study.methods]
    return (
        (row, method) != UNTRAINED,
        rows.index(row) if row in rows else len(rows),
        methods.index(method) if method in methods else len(methods),
        (row, method),
    )


def _queries(runs):
    """Run -> scores of its queries."""
    found = {}
    for run in runs:
        with np.load(run.path / QUERIES) as arrays:
            found[run.path.name] = dict(arrays)
    return found


def _row(folder, words, runs, queries):
    recipe = runs[0].read_recipe()
    row, method = words
    histories = [run.read_history() for run in runs]
    cell = Cell(
        folder / f"{row}.{method}",
        STUDIES[folder.name].cells.get(words, recipe)
        if folder.name in STUDIES
        else recipe,
        range(recipe.seed, recipe.seed + 1),
    )
    together = [
        dict(np.load(one))
        for one in sorted(cell.folder.glob(f"seed*-{QUERIES}"))
    ]
    parts = {"scores": [*queries[words].values()], "together": together}
    return {
        "row": row,
        "loss": recipe.loss,
        "method": method,
        "models": len(runs),
        "steps": recipe.steps,
        "seconds": sum(h[-1].get("seconds", 0.0) for h in histories if h),
        "embedding_size": recipe.embedding_size,
        "learning_rate": recipe.learning_rate if recipe.steps else None,
        "rates": _rates(cell.folder),
        **{
            part: {
                measure: mean_and_deviation(
                    np.nanmean(one[measure]) for one in found
                )
                for measure in MEASURES
            }
            for part, found in parts.items()
            if found
        },
        "activity": _activity(recipe, histories) | _on_letter(recipe, runs[0]),
        "curve": _curve(histories),
        "best_steps": [
            best_evaluation(history, recipe.chosen_by)["step"]
            for history in histories
            if history
        ],
        "differences": {
            other: found
            for other in (*BASELINES.get(method, ("gap",)), "untrained")
            if other != method
            and (other != "untrained" or _has_data_of_baseline(recipe, folder))
            and (found := _difference(words, other, recipe.loss, queries))
        },
    }


def _has_data_of_baseline(recipe, folder):
    """Whether the untrained network was scored on the same images."""
    baseline = RunDirectory(folder / ".".join(UNTRAINED) / "seed0")
    return (
        baseline.settings.exists()
        and baseline.read_recipe().data == recipe.data
    )


def _rates(folder):
    """Learning rate -> best validation score of the search."""
    found = {}
    for path in folder.glob("search-rate*/scores.json"):
        run = RunDirectory(path.parent)
        recipe = run.read_recipe()
        best = best_evaluation(run.read_history(), recipe.chosen_by)
        found[recipe.learning_rate] = best.get(f"val_{recipe.chosen_by}")
    return {f"{rate:g}": found[rate] for rate in sorted(found)}


def _difference(words, other, loss, queries):
    """The paired difference to another cell, over the runs that both have."""
    import keras_gsp as gsp

    ours = queries[words]
    theirs = (
        queries.get(UNTRAINED)
        if other == "untrained"
        else queries.get((words[0], other)) or queries.get((loss, other))
    )
    if not theirs or words == UNTRAINED:
        return None
    if other == "untrained" and not {*ours} & {*theirs}:
        # Pretrained features were scored once, for all seeds and folds.
        theirs = dict.fromkeys(ours, next(iter(theirs.values())))
    shared = [run for run in ours if run in theirs]
    if not shared:
        return None
    found = gsp.metrics.paired_difference(
        [ours[run]["map_at_r"] for run in shared],
        [theirs[run]["map_at_r"] for run in shared],
        [ours[run]["labels"] for run in shared],
    )
    names = ("difference", "low", "high", "num_seeds")
    return {name: found[name] for name in names}


def _activity(recipe, histories):
    found: dict[str, list] = {}
    for history in filter(None, histories):
        for name, join in ACTIVITY.items():
            values = [line[name] for line in history if name in line]
            if values:
                found.setdefault(name, []).append(join(values))
        if recipe.ccp == "on":
            solved = solved_problems(history, recipe.chosen_by)
            found.setdefault("ccp_scored", []).append(solved["scored_problem"])
    return found


def _on_letter(recipe, run):
    """How much of GSP's weight lies on the letters of `glyphs`."""
    is_gsp = "gsp" in recipe.pooling and recipe.steps
    if recipe.dataset != "glyphs" or not recipe.distractors or not is_gsp:
        return {}
    from training.datasets import glyphs
    from training.pictures.pooling_weights import pooling_weights
    from training.runs.scoring import load_encoder

    encoder = load_encoder(run)
    side = recipe.canvas_size or 2 * glyphs.CELL
    images = glyphs.load(canvas_size=side).test.images
    cells = glyphs.letter_cells("test", canvas_size=side)
    share = cell_share(
        pooling_weights(encoder, images), cells, side // glyphs.CELL
    )
    return {"weight_on_letter": [share]}


def cell_share(weights: np.ndarray, cells: np.ndarray, across: int) -> float:
    """Mean share of pooling weights that lies in one cell of each image.

    Args:
        weights: (images, rows, columns).
        cells: (images,), cells counted row by row.
        across: Cells in a row.
    """
    count, rows, columns = weights.shape
    parts = weights.reshape(
        count, across, rows // across, across, columns // across
    )
    shares = parts.sum((2, 4)).reshape(count, -1)
    return float(shares[np.arange(count), cells].mean())


def _curve(histories):
    """Mean validation score at each evaluation that all runs reached."""
    length = min(map(len, histories), default=0)
    return {
        "steps": [line["step"] for line in histories[0][:length]],
        "val_map_at_r": [
            float(np.mean([h[i]["val_map_at_r"] for h in histories]))
            for i in range(length)
        ],
    }


def study_table(record: Mapping[str, Any]) -> Table:
    """The table of a study's record, percentages.

    Columns that no row fills are left out.
    """
    size = max(row["embedding_size"] for row in record["rows"])
    headings = ["loss", "method", "rate", "validation"]
    headings += [f"MAP@R % ({size}-D)"]
    headings += ["gain", "gain over its part"]
    headings += [f"{HEADINGS[m]} % ({size}-D)" for m in MEASURES[1:]]
    headings += [f"{HEADINGS[m]}, folds together" for m in MEASURES]
    headings += ["papers", "at work", "models", "minutes each"]
    rows = [_table_row(record, row) for row in record["rows"]]
    kept = [i for i in range(len(headings)) if any(row[i] for row in rows)]
    return Table(
        [headings[i] for i in kept], [[row[i] for i in kept] for row in rows], 2
    )


def _table_row(record, row):
    scores, together = row["scores"], row.get("together")
    texts = [spread(scores[m], factor=100, digits=2) for m in MEASURES]
    joined = [
        spread(together[m], factor=100, digits=2) if together else ""
        for m in MEASURES
    ]
    rates = row.get("rates")
    printed = printed_number(record["dataset"], row["loss"], row["method"])
    return [
        row["row"],
        row["method"],
        f"{row['learning_rate']:g}" if rates else "",
        f"{100 * max(rates.values()):.2f}" if rates else "",
        texts[0],
        *_differences(row),
        *texts[1:],
        *joined,
        printed,
        at_work(row["activity"]),
        str(row["models"]),
        f"{row['seconds'] / 60 / max(1, row['models']):.1f}",
    ]


def _differences(row):
    """Over the pair loss (of which: the features), and over its own part."""
    found = row["differences"]
    first, *others = [*BASELINES.get(row["method"], ("gap",)), None]
    first = first or "untrained"
    second = next((name for name in others if name), row.get("compared"))
    return [_difference_text(name, found.get(name)) for name in (first, second)]


def _difference_text(name, found):
    return f"{name} {interval(found)}" if found else ""


def interval(found: Mapping[str, float]) -> str:
    """Formats a difference in points, `+1.25 [+0.52, +1.98]`."""
    low, middle, high = (
        f"{100 * found[key]:+.2f}" for key in ("low", "difference", "high")
    )
    return f"{middle} [{low}, {high}]"


def at_work(activity: Mapping[str, Any]) -> str:
    """Formats how active a method was, as ranges over the models."""
    texts = []
    for name, (word, form) in AT_WORK.items():
        if values := activity.get(name):
            low, high = (form.format(f(values)) for f in (min, max))
            texts.append(f"{word} {low if low == high else f'{low}-{high}'}")
    return ", ".join(texts)
