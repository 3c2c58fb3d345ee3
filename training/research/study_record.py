"""A study's folder as one record: scores, rates, differences, activity."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from training.recipes.data import needed_sources
from training.research.published import printed_number
from training.research.report import Table, over_runs, spread
from training.research.studies import (
    METHODS,
    STUDIES,
    UNTRAINED,
    Study,
    beside,
)
from training.research.study import near_best
from training.runs.progress import solved_problems
from training.runs.run_directory import RunDirectory
from training.runs.trial import MEASURES, QUERIES, Trial

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
SMALL_SHARE = 0.05
"""A regularizer with less of the gradient says nothing about its method."""
_RUN = re.compile(r"seed(\d+)-rate([\d.e+-]+?)(?:-fold(\d+))?")


def study_record(folder: Path) -> dict[str, Any]:
    """Collects what a study, finished or not, has found so far.

    The folder has the study's name. Each of the record's `rows` is a cell:
    scores as mean and deviation over seeds, each the mean over the rates
    within 0.3 points of the best validation score; the curve over rates;
    paired differences with 95 % intervals; activity of the method.
    """
    name = folder.name
    study = STUDIES.get(name, Study(name))
    cells = _cells(folder)
    if not cells:
        raise FileNotFoundError(
            "A study's folder must have a finished run. Received: "
            f"{folder}. Train one with `python -m training.research.study`."
        )
    words = sorted(cells, key=lambda one: _position(study, *one))
    queries = {one: _queries(cells[one], study.over) for one in words}
    first = RunDirectory(next(iter(cells[words[0]].values()))[0].path)
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
    """(row, method) -> (seed, fold) -> its trials at the rates that count."""
    found = {}
    for path in sorted(p for p in folder.glob("*.*") if p.is_dir()):
        row, _, method = path.name.rpartition(".")
        near = _near(path)
        runs: dict[tuple[int, int], list[Trial]] = {}
        for seed, rate, fold, trial in _trials(path):
            if rate in near:
                runs.setdefault((seed, fold), []).append(trial)
        # A seed counts once all of its rates are trained.
        kept = {k: v for k, v in runs.items() if len(v) == len(near)}
        if kept:
            found[row, method] = kept
    return found


def _trials(path):
    """(seed, rate, fold, trial) of every finished run of a cell."""
    for file in sorted(path.glob(f"seed*/{QUERIES}")):
        run = file.parent
        if match := _RUN.fullmatch(run.name):
            seed, rate, fold = match.groups()
            trial = Trial(run, RunDirectory(run).read_recipe())
            yield int(seed), float(rate), int(fold or 0), trial


def _rates(path):
    """Learning rate -> validation score of the first seed, mean over folds."""
    trials = [*_trials(path)]
    first = min((seed for seed, *_ in trials), default=0)
    found: dict[float, list[float]] = {}
    for seed, rate, _, trial in trials:
        if seed == first:
            found.setdefault(rate, []).append(trial.validation_score())
    return {rate: float(np.mean(found[rate])) for rate in sorted(found)}


def _near(path):
    scores = _rates(path)
    return near_best(scores) if scores else []


def _position(study, row, method):
    """The baseline, then row by row, methods as `METHODS` has them."""
    rows, methods = study.rows, [*METHODS, *study.methods]
    return (
        (row, method) != UNTRAINED,
        rows.index(row) if row in rows else len(rows),
        methods.index(method) if method in methods else len(methods),
        (row, method),
    )


def _queries(runs, over):
    """(seed, fold) -> mean scores of its queries over the rates, `groups`."""
    found = {}
    for key, trials in runs.items():
        parts = [one.queries() for one in trials]
        scores = {m: np.mean([p[m] for p in parts], axis=0) for m in MEASURES}
        groups = parts[0]["labels"]
        if over == "images":
            groups = np.arange(len(groups))
        found[key] = scores | {"groups": groups}
    return found


def _row(folder, words, runs, queries):
    trials = [one for same in runs.values() for one in same]
    recipe = trials[0].recipe
    row, method = words
    histories = [RunDirectory(one.path).read_history() for one in trials]
    path = trials[0].path.parent
    rates, near = _rates(path), _near(path)
    together = [
        dict(np.load(path / f"seed{seed}-rate{rate:g}-{QUERIES}"))
        for seed in sorted({seed for seed, _ in runs})
        for rate in near
        if (path / f"seed{seed}-rate{rate:g}-{QUERIES}").exists()
    ]
    others = [*beside(method, folder.name), "untrained"]
    return {
        "row": row,
        "loss": recipe.loss,
        "method": method,
        "models": len(runs),
        "steps": recipe.steps,
        "seconds": sum(h[-1].get("seconds", 0.0) for h in histories if h),
        "learning_rate": max(rates, key=rates.__getitem__)
        if recipe.steps
        else None,
        "near_rates": near if recipe.steps else [],
        # A run that diverged has no score.
        "rates": {f"{r:g}": max(0.0, s) for r, s in rates.items()}
        if recipe.steps
        else {},
        "scores": over_runs(_collections(queries[words])),
        **({"together": over_runs(_means(together))} if together else {}),
        "activity": _activity(recipe, histories)
        | _on_letter(recipe, RunDirectory(trials[0].path)),
        "differences": {
            other: found
            for other in others
            if (found := _difference(folder, words, other, recipe, queries))
        },
    }


def _means(scores):
    return [{m: np.nanmean(one[m]) for m in MEASURES} for one in scores]


def _collections(found):
    """Scores of each model; with folds, of each seed's models on average."""
    seeds = sorted({seed for seed, _ in found})
    if len(seeds) == 1:
        return _means(found.values())
    return [
        {m: np.mean([one[m] for one in same]) for m in MEASURES}
        for seed in seeds
        if (same := _means([q for key, q in found.items() if key[0] == seed]))
    ]


def _difference(folder, words, other, recipe, queries):
    """The paired difference to another cell, over the runs that both have.

    `over_models` is the 95 % interval over models alone, as papers print it.
    """
    import keras_gsp as gsp

    if words == UNTRAINED:
        return None
    ours = queries[words]
    theirs = queries.get((words[0], other)) or queries.get((recipe.loss, other))
    if other == "untrained":
        theirs = queries.get(UNTRAINED)
        if theirs and _data(folder, UNTRAINED) != _data(folder, words):
            return None
        if theirs and len(theirs) == 1:
            # Pretrained features were scored once, for all seeds and folds.
            theirs = dict.fromkeys(ours, next(iter(theirs.values())))
    shared = [run for run in ours if run in (theirs or {})]
    if not shared:
        return None
    own, base = (
        [one[run]["map_at_r"] for run in shared] for one in (ours, theirs)
    )
    groups = [ours[run]["groups"] for run in shared]
    found = gsp.metrics.paired_difference(own, base, groups)
    names = ("difference", "low", "high", "num_seeds")
    pairs = zip(own, base, strict=True)
    gains = [np.nanmean(one) - np.nanmean(other) for one, other in pairs]
    return {name: found[name] for name in names} | _over_models(gains)


def _over_models(gains):
    if len(gains) < 2:
        return {}
    from scipy import stats

    half = stats.sem(gains) * stats.t.ppf(0.975, len(gains) - 1)
    return {"over_models": [np.mean(gains) - half, np.mean(gains) + half]}


def _data(folder, words):
    """The settings of a cell's data."""
    file = next((folder / ".".join(words)).glob("seed*/settings.json"))
    return RunDirectory(file.parent).read_recipe().data


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
    size = recipe.canvas_size or 2 * glyphs.CELL
    images = glyphs.load(canvas_size=size).test.images
    cells = glyphs.letter_cells("test", canvas_size=size)
    share = cell_share(
        pooling_weights(encoder, images), cells, size // glyphs.CELL
    )
    return {"weight_on_letter": [share]}


def cell_share(weights: np.ndarray, cells: np.ndarray, across: int) -> float:
    """Mean share of pooling weights that lies in one cell of each image.

    A position belongs to the cell that its center is in. `weights`: (images,
    rows, columns); `cells`: (images,), counted row by row, `across` in a row.
    """
    row, column = (
        (2 * np.arange(count) + 1) * across // (2 * count)
        for count in weights.shape[1:]
    )
    is_own = across * row[:, None] + column == cells[:, None, None]
    return float(np.mean(np.sum(weights * is_own, axis=(1, 2))))


def study_table(record: Mapping[str, Any]) -> Table:
    """The table of a study's record, percentages.

    Columns that no row fills are left out.
    """
    headings = ["loss", "method", "rate", "MAP@R %", "gain", "over its part"]
    headings += ["folds together", "P@1 %", "papers", "at work"]
    rows = [_table_row(record, row) for row in record["rows"]]
    kept = [i for i in range(len(headings)) if any(row[i] for row in rows)]
    return Table(
        [headings[i] for i in kept], [[row[i] for i in kept] for row in rows], 2
    )


def _table_row(record, row):
    near = row.get("near_rates") or [row["learning_rate"] or 0.0]
    rates = "-".join(f"{r:g}" for r in dict.fromkeys((min(near), max(near))))
    # Names, and the gain over the pair loss: of that itself, over the features.
    names = [*beside(row["method"], record["study"])] or ["untrained"]
    found = [(name, row["differences"].get(name)) for name in names[:2]]
    gains = [f"{name} {interval(one)}" if one else "" for name, one in found]
    together = row.get("together")
    models = row["models"]
    activity = [at_work(row["activity"]), f"{models} model{'s'[: models > 1]}"]
    return [
        row["row"],
        method_name(row),
        rates if row["learning_rate"] else "",
        spread(row["scores"]["map_at_r"], 100, 2),
        *[*gains, ""][:2],
        spread(together["map_at_r"], 100, 2) if together else "",
        spread(row["scores"]["precision_at_1"], 100, 1),
        # A study of another name has other images.
        printed_number(record["study"], row["loss"], row["method"]),
        "; ".join(filter(None, activity)),
    ]


def method_name(row: Mapping[str, Any]) -> str:
    """The method of a row; CCP that was scored in its first problem is none.

    Then it is one set of proxies, and is named so.
    """
    method, scored = row["method"], row["activity"].get("ccp_scored", [])
    alternating = sum(problem > 1 for problem in scored)
    if scored and not alternating:
        return method.replace("ccp", "single") + " (one set)"
    if alternating < len(scored):
        return f"{method} ({alternating} of {len(scored)} alternate)"
    return method


def interval(found: Mapping[str, Any], digits: int = 2) -> str:
    """Formats a difference in points, `+1.25 [+0.52, +1.98]`.

    Without an interval where the record has none.
    """
    text = f"{100 * found['difference']:+.{digits}f}"
    if found.get("low") is None:
        return text
    low, high = (f"{100 * found[end]:+.{digits}f}" for end in ("low", "high"))
    text = f"{text} [{low}, {high}]"
    if models := found.get("over_models"):
        low, high = (f"{100 * end:+.{digits}f}" for end in models)
        text += f", models [{low}, {high}]"
    return text


def at_work(activity: Mapping[str, Any]) -> str:
    """Formats how active a method was, as ranges over the models."""
    texts = []
    for name, (word, form) in AT_WORK.items():
        if values := activity.get(name):
            low, high = (form.format(f(values)) for f in (min, max))
            texts.append(f"{word} {low if low == high else f'{low}-{high}'}")
            if name == "regularizer_share" and max(values) < SMALL_SHARE:
                texts[-1] += " (too small to be evidence)"
    return ", ".join(texts)
