"""A study's folder as one record: scores, rates, differences, activity."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from training.recipes.data import needed_sources
from training.research.published import printed_number
from training.research.report import Table, over_runs, spread
from training.research.studies import (
    BASELINES,
    METHODS,
    STUDIES,
    UNTRAINED,
    Study,
)
from training.research.study import MEASURES, QUERIES
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
    "ccp_covering_radius": lambda values: values[-1],
    "memory_fill": max,
    "regularizer_share": lambda values: float(np.mean(values)),
    "transport_ratio": lambda values: values[-1],
}
AT_WORK = {
    "ccp_problem": ("problems", "{:.0f}"),
    "ccp_scored": ("scored in", "{:.0f}"),
    "ccp_covering_radius": ("covering radius", "{:.2f}"),
    "memory_fill": ("memory", "{:.0%}"),
    "regularizer_share": ("share", "{:.2g}"),
    "transport_ratio": ("ratio", "{:.2f}"),
    "weight_on_letter": ("weight on the letter", "{:.0%}"),
}


def study_record(folder: Path) -> dict[str, Any]:
    """Collects what a study, finished or not, has found so far.

    The folder has the study's name. Each of the record's `rows` is a cell:
    scores as mean and deviation over seeds, the learning rate and its curve,
    paired differences with 95 % intervals, activity of the method, mean
    validation curve.
    """
    name = folder.name
    study = STUDIES.get(name, Study(name, {}))
    cells = _cells(folder)
    if not cells:
        raise FileNotFoundError(
            "A study's folder must have a finished run. Received: "
            f"{folder}. Train one with `python -m training.research.study`."
        )
    words = sorted(cells, key=lambda one: _place(study, *one))
    queries = {one: _queries(cells[one], study.over) for one in words}
    first = cells[words[0]][0]
    return {
        "kind": "study",
        "study": name,
        "title": study.title,
        "about": study.about,
        "command": study_command(name),
        "dataset": first.read_recipe().dataset,
        "over": study.over,
        "environment": first.read_settings()["environment"],
        "rows": [_row(folder, one, cells[one], queries) for one in words],
    }


def study_command(name: str) -> str:
    """The command that trains a study, with the options that it needs."""
    recipes = STUDIES[name].cells.values() if name in STUDIES else ()
    needed = {
        option
        for recipe in recipes
        for option in needed_sources(recipe)
        if getattr(recipe, option) is None
    }
    words = {"data_dir": "--data-dir DATA"}
    words["backbone_weights"] = "--backbone-weights WEIGHTS"
    options = [words[one] for one in words if one in needed]
    return " ".join([f"python -m training.research.study {name}", *options])


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


def _queries(runs, over):
    """Run -> scores of its queries, and `groups` that intervals resample."""
    found = {}
    for run in runs:
        with np.load(run.path / QUERIES) as arrays:
            scores = dict(arrays)
        groups = scores["labels"]
        if over == "images":
            groups = np.arange(len(groups))
        found[run.path.name] = scores | {"groups": groups}
    return found


def _row(folder, words, runs, queries):
    recipe = runs[0].read_recipe()
    row, method = words
    histories = [run.read_history() for run in runs]
    cell = runs[0].path.parent
    parts = {
        "scores": [*queries[words].values()],
        "together": [
            dict(np.load(one)) for one in sorted(cell.glob(f"seed*-{QUERIES}"))
        ],
    }
    others = [*BASELINES.get(method, ("gap",))]
    if _has_data_of_baseline(recipe, folder):
        others.append("untrained")
    return {
        "row": row,
        "loss": recipe.loss,
        "method": method,
        "models": len(runs),
        "steps": recipe.steps,
        "seconds": sum(h[-1].get("seconds", 0.0) for h in histories if h),
        "embedding_size": recipe.embedding_size,
        "learning_rate": recipe.learning_rate if recipe.steps else None,
        "rates": _rates(cell),
        **{
            part: over_runs(
                [{m: np.nanmean(one[m]) for m in MEASURES} for one in found]
            )
            for part, found in parts.items()
            if found
        },
        "activity": _activity(recipe, histories) | _on_letter(recipe, runs[0]),
        "curve": _curve(histories),
        "differences": {
            other: found
            for other in others
            if (found := _difference(words, other, recipe.loss, queries))
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
    """Learning rate -> best validation score of the search, mean over folds."""
    found: dict[float, list] = {}
    for path in folder.glob("search-rate*/scores.json"):
        run = RunDirectory(path.parent)
        recipe = run.read_recipe()
        best = best_evaluation(run.read_history(), recipe.chosen_by)
        score = best.get(f"val_{recipe.chosen_by}", 0.0)
        found.setdefault(recipe.learning_rate, []).append(score)
    # A run that diverged has no score.
    return {
        f"{rate:g}": float(np.mean(np.nan_to_num(found[rate])))
        for rate in sorted(found)
    }


def _difference(words, other, loss, queries):
    """The paired difference to another cell, over the runs that both have."""
    import keras_gsp as gsp

    ours = queries[words]
    theirs = queries.get((words[0], other)) or queries.get((loss, other))
    if other == "untrained":
        theirs = queries.get(UNTRAINED)
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
        [ours[run]["groups"] for run in shared],
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

    A place belongs to the cell that its center is in. `weights`: (images, rows,
    columns); `cells`: (images,), counted row by row, `across` in a row.
    """
    row, column = (
        (2 * np.arange(count) + 1) * across // (2 * count)
        for count in weights.shape[1:]
    )
    is_own = across * row[:, None] + column == cells[:, None, None]
    return float(np.mean(np.sum(weights * is_own, axis=(1, 2))))


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
    texts = [spread(row["scores"][m], 100, 2) for m in MEASURES]
    joined = [""] * len(MEASURES)
    if together := row.get("together"):
        joined = [spread(together[m], 100, 2) for m in MEASURES]
    rates = row.get("rates")
    return [
        row["row"],
        row["method"],
        f"{row['learning_rate']:g}" if rates else "",
        f"{100 * max(rates.values()):.2f}" if rates else "",
        texts[0],
        *_differences(row),
        *texts[1:],
        *joined,
        printed_number(record["dataset"], row["loss"], row["method"]),
        at_work(row["activity"]),
        str(row["models"]),
        f"{row['seconds'] / 60 / max(1, row['models']):.1f}",
    ]


def _differences(row):
    """Over the pair loss (of which: the features), and over its own part."""
    names = [*BASELINES.get(row["method"], ("gap",))] or ["untrained"]
    found = [(name, row["differences"].get(name)) for name in names[:2]]
    texts = [f"{name} {interval(one)}" if one else "" for name, one in found]
    return [*texts, ""][:2]


def interval(found: Mapping[str, float], digits: int = 2) -> str:
    """Formats a difference in points, `+1.25 [+0.52, +1.98]`."""
    low, middle, high = (
        f"{100 * found[key]:+.{digits}f}"
        for key in ("low", "difference", "high")
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
