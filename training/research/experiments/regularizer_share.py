"""What a regularizer did in short trainings: kept with scores, and shown.

A record made before there was such a note has none, and its table no columns.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from training.research.results.markdown import mean_and_deviation, spread

HEADINGS = ("regularizer's weight", "its share of the gradient")


def noted(learner: Any, logs: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """A regularizer's weight and its share of the gradient.

    Args:
        learner: A `MetricLearner` that was trained.
        logs: What training logged, by name.

    Returns:
        `"weight"` and `"share"`, the mean over steps; nothing of a learner
        that does not log the share.
    """
    if "regularizer_share" not in logs:
        return {}
    (share,) = logs["regularizer_share"]
    return {"weight": learner.regularizer_weight, "share": share}


def over_seeds(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The notes of one method's runs as a part of its scores.

    Returns:
        `"regularizer"`, weight and share; nothing where nothing was noted.
    """
    if not runs or not all(runs):
        return {}
    return {
        "regularizer": {
            "weight": runs[0]["weight"],
            "share": mean_and_deviation(run["share"] for run in runs),
        }
    }


def columns(
    methods: Sequence[Mapping[str, Any]],
) -> tuple[list[str], list[list[Any]]]:
    """Headings, and the cells of each method.

    Args:
        methods: Scores with what `over_seeds` added, or not.

    Returns:
        No headings and no cells where no method has a note.
    """
    notes = [found.get("regularizer") for found in methods]
    if not any(notes):
        return [], [[] for _ in methods]
    return list(HEADINGS), [
        ["-", "-"]
        if note is None
        else [f"{note['weight']:g}", spread(note["share"], digits=4)]
        for note in notes
    ]
