"""A study's folder as one small record: scores, differences, curves."""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from training.research.protocols.ledger import Ledger
from training.research.protocols.members import members_of
from training.research.protocols.query_scores import MEASURES, load_query_scores
from training.research.results.markdown import mean_and_deviation
from training.research.studies import BASELINES, STUDIES, UNTRAINED, Study
from training.runs.best_evaluation import best_evaluation, solved_problems
from training.runs.run_directory import RunDirectory

# What of a method has to be seen at work, by its name in the history; which
# evaluation says it.
ACTIVITY: dict[str, Callable[[list], Any]] = {
    "ccp_problem": max,
    "memory_fill": max,
    "regularizer_share": lambda values: float(np.mean(values)),
    "transport_ratio": lambda values: values[-1],
}
DIFFERENCE = "map_at_r"


def study_results(folder: Path | str) -> dict[str, Any]:
    """Collects what a study, finished or not, has found so far.

    Args:
        folder: A study's folder, or that of one of its cells.

    Returns:
        Dict of JSON's own types: the study's facts, and under `"rows"` for
        each cell its scores as mean and deviation over the models trained so
        far, paired differences to its baselines with their 95 % interval
        over classes and seeds, how far its method was at work, its mean
        learning curve and its seconds.

    Raises:
        FileNotFoundError: no finished model there.
    """
    folder = Path(folder)
    paths = [folder] if (folder / "members").is_dir() else []
    if folder.is_dir():
        paths += sorted(path for path in folder.iterdir() if path.is_dir())
    cells = {}
    for path in paths:
        directory = RunDirectory(path)
        if directory.settings.exists() and _finished(directory):
            cells[_words(directory)] = directory
    if not cells:
        raise FileNotFoundError(
            "`folder` must hold a finished run of a protocol. Received: "
            f"{folder}. Train one with `python -m training.research.study`."
        )
    every = [directory.read_settings() for directory in cells.values()]
    settings = every[0]
    study = _study_of(every, cells) or folder.name
    known = STUDIES.get(study, Study(study))
    by_row = _by_row(list(known.cells))
    order = {words: place for place, words in enumerate(by_row)}
    queries = {
        words: _query_scores(directory) for words, directory in cells.items()
    }
    rows = [
        _row(words, cells[words], queries, known.compared)
        for words in sorted(cells, key=lambda w: (order.get(w, len(order)), w))
    ]
    return {
        "kind": "study",
        "study": study,
        "title": known.title,
        "about": known.about,
        "dataset": settings["recipe"]["dataset"],
        "environment": settings["environment"],
        "commits": _commits(every),
        "effects": _effects(known.factors, rows),
        "rows": rows,
    }


def _study_of(settings, cells):
    """The study that plans all cells: some may have come with `--kept`."""
    named = Counter(one["study"] for one in settings if "study" in one)
    names = [name for name, _ in named.most_common()]
    for name in names:
        if name in STUDIES and set(cells) <= set(STUDIES[name].cells):
            return name
    return names[0] if names else ""


def _commits(settings):
    """Those that cells were begun with, the most frequent first."""
    found = Counter(one["environment"].get("commit") for one in settings)
    return [commit for commit, _ in found.most_common() if commit]


def _effects(factors, rows):
    """Loss -> factor -> its levels, and what the upper one adds to MAP@R.

    Of a two-level design: mean over the rows at the upper level minus mean
    over those at the lower. Losses of which a row is missing are left out.
    """
    effects: dict[str, Any] = {}
    for loss in dict.fromkeys(row["loss"] for row in rows):
        scores = {
            row["row"]: _score(row)
            for row in rows
            if row["loss"] == loss and row["row"] in factors
        }
        wanted = [name for name in factors if name.startswith(f"{loss}-")]
        if not wanted or set(wanted) != set(scores):
            continue
        effects[loss] = {}
        for name in factors[wanted[0]]:
            levels = sorted({factors[row][name] for row in wanted})
            means = [
                float(
                    np.mean(
                        [scores[r] for r in wanted if factors[r][name] == level]
                    )
                )
                for level in levels
            ]
            effects[loss][name] = {
                "levels": levels,
                "effect": means[-1] - means[0],
            }
    return effects


def _score(row):
    part = next(p for p in ("average", "single") if p in row["parts"])
    return row["parts"][part][DIFFERENCE]["mean"]


def _finished(directory):
    ledger = Ledger(directory.path)
    members = members_of(directory.read_recipe())
    return [member for member in members if ledger.is_finished(member)]


def _words(directory):
    row, _, method = directory.path.name.rpartition(".")
    if not row:
        return directory.read_recipe().loss, directory.path.name
    return row, method


def _by_row(cells):
    """The untrained baseline, then row by row as the study names them."""
    rows = list(dict.fromkeys(row for row, _ in cells))
    methods = list(dict.fromkeys(["gap", *BASELINES]))
    return sorted(
        cells,
        key=lambda words: (
            words != UNTRAINED,
            rows.index(words[0]),
            methods.index(words[1]) if words[1] in methods else len(methods),
        ),
    )


def _row(words, directory, queries, compared):
    recipe = directory.read_recipe()
    ledger = Ledger(directory.path)
    members = _finished(directory)
    runs = [ledger.directory(member) for member in members]
    row = {
        "row": words[0],
        "loss": recipe.loss,
        "method": words[1],
        "protocol": recipe.protocol,
        "backbone": recipe.backbone,
        "models": len(members),
        "is_finished": len(members) == len(members_of(recipe)),
        "steps": recipe.steps,
        "evaluations": recipe.evaluations,
        "seconds": round(_seconds(ledger, runs), 1),
        "parts": _parts(directory, recipe, queries[words]),
        "activity": _activity(recipe, runs),
        "curve": _curve(runs),
        "best_steps": [
            best_evaluation(run.read_history(), recipe.chosen_by)["step"]
            for run in runs
            if recipe.steps
        ],
        "differences": {},
    }
    if directory.is_finished:
        saved = directory.read_scores()
        row["selected_on"] = saved["selected_on"]
        row["collections"] = saved.get("num_collections")
        row["best"] = saved.get("best")
    for method in BASELINES.get(words[1], ()):
        # A row of a loss with other settings may lack a baseline of its own.
        other = queries.get((words[0], method)) or queries.get(
            (recipe.loss, method)
        )
        if other is not None:
            row["differences"][method] = _difference(queries[words], other)
    other = queries.get((compared.get(words[0]), words[1]))
    if other is not None:
        row["compared"] = compared[words[0]]
        row["differences"][row["compared"]] = _difference(queries[words], other)
    other = queries.get(UNTRAINED)
    if other is not None and words != UNTRAINED:
        # One of pretrained features stands for every seed.
        if len(other) == 1:
            other = dict.fromkeys(queries[words], *other.values())
        row["differences"]["untrained"] = _difference(queries[words], other)
    return row


def _parts(directory, recipe, queries):
    """Scores as the protocol has them; those of single models before."""
    if directory.is_finished:
        saved = directory.read_scores()
        found = {
            part: {
                name: saved[part][name]
                for name in ("embedding_size", *MEASURES)
            }
            for part in ("single", "average", "concatenated")
            if part in saved
        }
        if saved["num_models"] == len(queries):
            return found
    size = recipe.embedding_size
    means = {
        name: mean_and_deviation(
            np.nanmean(scores[name]) for scores in queries.values()
        )
        for name in MEASURES
    }
    part = "average" if recipe.protocol == "fair" else "single"
    return {part: {"embedding_size": size, **means}}


def _query_scores(directory) -> Mapping[str, Mapping]:
    ledger = Ledger(directory.path)
    return {
        member.name: load_query_scores(ledger.directory(member).path)
        for member in _finished(directory)
    }


def _difference(ours, theirs):
    """The paired difference over the models that both have."""
    import keras_gsp as gsp

    shared = [name for name in ours if name in theirs]
    if not shared:
        return None
    found = gsp.metrics.paired_difference(
        [ours[name][DIFFERENCE] for name in shared],
        [theirs[name][DIFFERENCE] for name in shared],
        [ours[name]["labels"] for name in shared],
    )
    return {
        name: found[name] for name in ("difference", "low", "high", "num_seeds")
    }


def _seconds(ledger, runs):
    """Of training, whatever the number of processes; else of everything."""
    histories = [run.read_history() for run in runs]
    if all(histories):
        return sum(history[-1].get("seconds", 0.0) for history in histories)
    return ledger.seconds()


def _activity(recipe, runs):
    found: dict[str, list] = {}
    for run in runs:
        history = run.read_history()
        for name, choose in ACTIVITY.items():
            values = [line[name] for line in history if name in line]
            if values:
                found.setdefault(name, []).append(choose(values))
        if recipe.ccp == "on":
            solved = solved_problems(history, recipe.chosen_by)
            scored = solved["scored_problem"]
            found.setdefault("ccp_scored", []).append(scored)
        problems = {
            line["ccp_problem"]: line["ccp_steps"]
            for line in history
            if line.get("ccp_problem")
        }
        if problems:
            # The last problem is cut off by the end of training.
            found.setdefault("ccp_steps", []).append(list(problems.values()))
    return found


def _curve(runs):
    """Mean validation score at each evaluation that all runs reached."""
    histories = [run.read_history() for run in runs]
    length = min(map(len, histories), default=0)
    return {
        "steps": [line["step"] for line in histories[0][:length]],
        "val_map_at_r": [
            round(float(np.mean([h[i]["val_map_at_r"] for h in histories])), 4)
            for i in range(length)
        ],
    }
