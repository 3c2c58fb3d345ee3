"""A study's folder as one record: scores, rates, differences, activity."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from training.recipes.data import needed_sources
from training.research.published import printed_number
from training.research.report import Table, gain_text, over_runs, spread
from training.research.studies import METHODS, STUDIES, UNTRAINED, Study, beside
from training.research.study import near_best
from training.runs.callbacks import solved_problems
from training.runs.run_directory import RunDirectory
from training.runs.trial import MEASURES, QUERIES, Trial

# What shows a method at work, mostly a column of the history: how evaluations
# join, its word in a table, and its format.
ACTIVITY: dict[str, tuple[Callable[[list], Any] | None, str, str]] = {
    "ccp_problem": (max, "problems", "{:.0f}"),
    "ccp_scored": (None, "scored in", "{:.0f}"),
    "memory_fill": (max, "memory", "{:.0%}"),
    "regularizer_share": (lambda v: float(np.mean(v)), "share", "{:.2g}"),
    "weight_on_letter": (None, "weight on the letter", "{:.0%}"),
}
FEWEST_MODELS = 3
"""Of fewer, a difference has no interval."""
_RUN = re.compile(r"seed(\d+)-rate([\d.e+-]+?)(?:-fold(\d+))?")


def study_record(folder: Path) -> dict[str, Any]:
    """Collects what a study, finished or not, has found so far.

    The folder has the study's name. Each of the record's `rows` is a cell:
    scores as mean and deviation over models (with folds over folds), each the
    mean over the rates within 0.3 points of the best validation score; the
    curve over rates;
    paired differences with 95 % intervals; activity of the method.
    """
    name = folder.name
    study = STUDIES.get(name, Study(name))
    families: dict[tuple[str, str], list[_Cell]] = defaultdict(list)
    for path in sorted(p for p in folder.glob("*.*") if p.is_dir()):
        row, _, method = path.name.rpartition(".")
        if (cell := _cell(path, study)).runs:
            families[study.family((row, method))].append(cell)
    # Of a method with several settings, those that validate best.
    cells = {
        key: replace(
            max(rivals, key=lambda cell: max(cell.rates.values())),
            searched=len(rivals),
        )
        for key, rivals in families.items()
    }
    if not cells:
        raise FileNotFoundError(
            "A study's folder must have a finished run. Received: "
            f"{folder}. Train one with `python -m training.research.study`."
        )
    keys = sorted(cells, key=lambda key: _position(study, *key))
    environments = [
        RunDirectory(trial.path).read_settings()["environment"]
        for key in keys
        for trial in cells[key].trials
    ]
    return {
        **{"kind": "study", "study": name, "title": study.title},
        **{"about": study.about, "command": study_command(name, cells)},
        "over": study.over,
        "search_seeds": study.search_seeds,
        "weights": [file.name for file in study.kept],
        "environment": _together(environments),
        "commits": [
            *dict.fromkeys(e["commit"] or "unknown" for e in environments)
        ],
        "rows": [_row(name, key, cells) for key in keys],
    }


def _together(environments):
    """One environment of several; what differs is joined."""
    first, packages = environments[0], [e["packages"] for e in environments]

    def joined(name, ones):
        return " and ".join(dict.fromkeys(f"{e.get(name)}" for e in ones))

    together = {name: joined(name, environments) for name in first}
    return together | {
        "packages": {n: joined(n, packages) for one in packages for n in one}
    }


def study_command(name: str, cells: Mapping[tuple[str, str], "_Cell"]) -> str:
    """The command that trains these cells of a study, with what it needs."""
    missing = {
        option
        for recipe in (STUDIES[name].cells.values() if name in STUDIES else ())
        for option in _sources(recipe)
        if getattr(recipe, option) is None
    }
    command = f"python -m training.research.study {name}"
    if "data_dir" in missing:
        command += " --data-dir DATA"
    if "backbone_weights" in missing:
        command += " --backbone-weights WEIGHTS"
    study = STUDIES.get(name, Study(name))
    rows = [row for row in study.rows if row in {row for row, _ in cells}]
    if 1 < len(rows) < len(study.rows):
        command += f" --losses {' '.join(rows[1:])}"
    seeds = max(len({s for s, _ in cell.runs}) for cell in cells.values())
    if seeds not in (0, study.seeds):
        command += f" --seeds {seeds}"
    return command


def _sources(recipe):
    """What a recipe of a study reads; MobileNetV2 is pretrained in all."""
    if recipe.backbone == "mobilenet-v2":
        return "data_dir", "backbone_weights"
    return needed_sources(recipe)


@dataclass(frozen=True)
class _Cell:
    rates: dict[float, float]
    """Learning rate -> validation score of the first seed, mean over folds."""
    near: list[float]
    runs: dict[tuple[int, int], list[Trial]]
    """(seed, fold) -> trials at the rates near the best."""
    queries: dict[tuple[int, int], dict[str, np.ndarray]]
    """(seed, fold) -> mean scores of its queries over the rates, `groups`."""

    searched: int = 1
    """Settings of the method that were searched."""

    @property
    def trials(self) -> list[Trial]:
        return [one for same in self.runs.values() for one in same]


def _cell(path, study):
    """What the finished runs in a cell's folder have scored."""
    trials = []
    for file in sorted(path.glob(f"seed*/{QUERIES}")):
        if match := _RUN.fullmatch(file.parent.name):
            seed, rate, fold = match.groups()
            trial = Trial(file.parent, RunDirectory(file.parent).read_recipe())
            trials.append((float(rate), (int(seed), int(fold or 0)), trial))
    _check_one_recipe([trial for *_, trial in trials])
    first = min((seed for _, (seed, _), _ in trials), default=0)
    scores, runs = defaultdict(list), defaultdict(list)
    for rate, (seed, _), trial in trials:
        if seed < first + study.search_seeds:
            scores[rate].append(trial.validation_score())
    rates = {rate: float(np.mean(scores[rate])) for rate in sorted(scores)}
    near = near_best(rates, study.near) if rates else []
    for rate, key, trial in trials:
        if rate in near:
            runs[key].append(trial)
    # A seed counts once all of its rates are trained.
    whole = {k: v for k, v in runs.items() if len(v) == len(near)}
    queries = {}
    for key, of_rates in whole.items():
        parts = [trial.queries() for trial in of_rates]
        labels = parts[0]["labels"]
        is_image = study.over == "images"
        queries[key] = {
            measure: np.mean([part[measure] for part in parts], axis=0)
            for measure in MEASURES
        } | {"groups": np.arange(len(labels)) if is_image else labels}
    return _Cell(rates, near, whole, queries)


def _check_one_recipe(trials):
    """Raises if a cell's models differ in more than they may."""
    varies = {"seed", "learning_rate", "validation_fold"}
    varies |= {"data_dir", "backbone_weights"}
    settings = [trial.recipe.settings for trial in trials]
    for trial, one in zip(trials, settings, strict=True):
        differing = [k for k in one if one[k] != settings[0][k]]
        if differing := sorted({*differing} - varies):
            raise ValueError(
                "Models of a cell must have the same settings. Received: "
                f"other {', '.join(differing)} in {trial.path} than in "
                f"{trials[0].path}. Move the older ones away."
            )


def _position(study, row, method):
    """The baseline, then row by row, methods as `METHODS` has them."""
    rows, methods = study.rows, [*METHODS, *study.methods]
    return (
        (row, method) != UNTRAINED,
        rows.index(row) if row in rows else len(rows),
        methods.index(method) if method in methods else len(methods),
        (row, method),
    )


def _row(study, key, cells):
    cell = cells[key]
    row, method = key
    recipe = cell.trials[0].recipe
    histories = [RunDirectory(t.path).read_history() for t in cell.trials]
    is_trained = recipe.steps > 0
    differences = {
        other: _difference(key, other, cells)
        for other in (*beside(method, study), "untrained")
    }
    facts = {
        **{"row": row, "loss": recipe.loss, "method": method},
        **{"models": len(cell.runs), "steps": recipe.steps},
        "seconds": sum(h[-1].get("seconds", 0.0) for h in histories if h),
        "learning_rate": max(cell.rates, key=cell.rates.__getitem__)
        if is_trained
        else None,
        "near_rates": cell.near if is_trained else [],
        # A run that diverged has no score.
        "rates": {f"{r:g}": max(0.0, s) for r, s in cell.rates.items()}
        if is_trained
        else {},
        "scores": over_runs(_collections(cell.queries)),
        "activity": _activity(recipe, histories),
        "differences": {k: v for k, v in differences.items() if v},
    }
    if cell.searched > 1:
        facts |= {"settings": _chosen(recipe), "searched": cell.searched}
    return facts


def _chosen(recipe):
    """The settings of a pooling that were searched."""
    names = "transport_ratio", "inverse_temperature", "num_prototypes"
    is_gsp = "gsp" in recipe.pooling
    settings = {n: getattr(recipe, n) for n in names} if is_gsp else {}
    return settings | dict(recipe.pooling_arguments)


def _clusters(runs):
    """Runs that count once: models of a fold share their classes."""
    folds = {fold for _, fold in runs}
    if len(folds) == 1:
        return [[run] for run in runs]
    return [[run for run in runs if run[1] == fold] for fold in sorted(folds)]


def _collections(queries):
    """Scores of each model; with folds, of each fold's models on average."""
    return [
        {
            m: np.mean([np.nanmean(queries[run][m]) for run in cluster])
            for m in MEASURES
        }
        for cluster in _clusters([*queries])
    ]


def _difference(key, other, cells):
    """The paired difference to another cell, over the runs that both have."""
    import keras_gsp as gsp

    cell, recipe = cells[key], cells[key].trials[0].recipe
    base = cells.get((key[0], other))
    if other == "untrained":
        base = cells.get(UNTRAINED)
        if key == UNTRAINED:
            return None
    elif not base:
        # A row of other settings, which the baseline lacks.
        base = cells.get((recipe.loss, other))
        if base and base.trials[0].recipe.frozen != recipe.frozen:
            return None
    if not base or base.trials[0].recipe.images != recipe.images:
        return None
    queries = base.queries
    if other == "untrained":
        # Features of a network were scored once, for all that start from it.
        of_start = {_start(base, run): queries[run] for run in queries}
        starts = {run: _start(cell, run) for run in cell.queries}
        queries = {r: of_start[s] for r, s in starts.items() if s in of_start}
    shared = [run for run in cell.queries if run in queries]
    if not shared:
        return None
    clusters = _clusters(shared)
    ours, theirs = (
        [np.mean([x[run]["map_at_r"] for run in c], axis=0) for c in clusters]
        for x in (cell.queries, queries)
    )
    groups = [cell.queries[first]["groups"] for first, *_ in clusters]
    gain = gsp.metrics.paired_difference(ours, theirs, groups)
    # Of two models an interval would have a coverage of its own.
    has_interval = len(clusters) >= FEWEST_MODELS or not recipe.steps
    ends = ("low", "high") if has_interval else ()
    return {name: gain[name] for name in ("difference", "num_seeds", *ends)}


def _start(cell, run):
    """The network that a run starts from: its weights, or else its seed."""
    recipe, weights = cell.runs[run][0].recipe, None
    if recipe.backbone_weights:
        weights = Path(recipe.backbone_weights).name
    return recipe.backbone, weights, None if weights else run[0]


def _activity(recipe, histories):
    activity = defaultdict(list)
    for history in filter(None, histories):
        for name, (join, *_) in ACTIVITY.items():
            values = [line[name] for line in history if name in line]
            if join and values:
                activity[name].append(join(values))
        if recipe.ccp == "on":
            solved = solved_problems(history)
            activity["ccp_scored"].append(solved["scored_problem"])
    return dict(activity)


def study_table(record: Mapping[str, Any]) -> Table:
    """The table of a study's record, percentages.

    Columns that no row fills are left out.
    """
    headings = ["loss", "method", "rate", "MAP@R %", "gain", "over its part"]
    headings += ["P@1 %", "papers", "at work"]
    rows = [_table_row(record, row) for row in record["rows"]]
    filled = [i for i in range(len(headings)) if any(row[i] for row in rows)]
    return Table(
        [headings[i] for i in filled],
        [[row[i] for i in filled] for row in rows],
        2,
    )


def _table_row(record, row):
    near = row.get("near_rates") or [row["learning_rate"] or 0.0]
    rates = "-".join(f"{r:g}" for r in dict.fromkeys((min(near), max(near))))
    # Names, and the gain over the pair loss: of that itself, over the features.
    names = [*beside(row["method"], record["study"])] or ["untrained"]
    known = row["differences"]
    count = len(row["scores"]["map_at_r"]["values"])
    gains = [
        f"{n} {gain_text(known[n], 2)}"
        + f" (of {known[n]['num_seeds']} models)"
        * (known[n]["num_seeds"] < count)
        if n in known
        else ""
        for n in names
    ]
    models = row["models"]
    activity = [at_work(row["activity"]), f"{models} model{'s'[: models > 1]}"]
    return [
        row["row"],
        method_name(row) + _settings_text(row),
        rates if row["learning_rate"] else "",
        spread(row["scores"]["map_at_r"], 100, 2),
        *[*gains, ""][:2],
        spread(row["scores"]["precision_at_1"], 100, 1),
        # A study of another name has other images.
        printed_number(record["study"], row["loss"], row["method"]),
        "; ".join(filter(None, activity)),
    ]


def _settings_text(row):
    chosen = ", ".join(f"{v:g}" for v in row.get("settings", {}).values())
    return f" ({chosen}; best of {row['searched']})" if chosen else ""


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


def at_work(activity: Mapping[str, Any]) -> str:
    """Formats how active a method was, as ranges over the models."""
    texts = []
    for name, (_, word, form) in ACTIVITY.items():
        if values := activity.get(name):
            low, high = (form.format(f(values)) for f in (min, max))
            texts.append(f"{word} {low if low == high else f'{low}-{high}'}")
    return ", ".join(texts)
