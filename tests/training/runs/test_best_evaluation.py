"""Weights are those of the first of the best evaluations."""

import numpy as np
import pytest

from training.runs.best_evaluation import best_evaluation, solved_problems


def history(*scores, problems=None):
    problems = problems or [0] * len(scores)
    return [
        {"step": 10 * i + 10, "val_map_at_r": score, "ccp_problem": problem}
        for i, (score, problem) in enumerate(zip(scores, problems, strict=True))
    ]


@pytest.mark.parametrize(
    "scores, step",
    [((0.1, 0.3, 0.2), 20), ((0.3, 0.3), 10), ((np.nan, 0.1, np.nan), 20)],
)
def test_the_first_of_the_best_is_kept(scores, step):
    assert best_evaluation(history(*scores), "map_at_r")["step"] == step


def test_another_measure_may_choose():
    lines = [
        {"step": 1, "val_map_at_r": 0.9, "val_precision_at_1": 0.1},
        {"step": 2, "val_map_at_r": 0.1, "val_precision_at_1": 0.9},
    ]
    assert best_evaluation(lines, "map_at_r")["step"] == 1
    assert best_evaluation(lines, "precision_at_1")["step"] == 2


@pytest.mark.parametrize(
    "scores, scored", [((0.1, 0.3, 0.2, 0.25), 1), ((0.1, 0.2, 0.3, 0.1), 2)]
)
def test_problems_behind_the_best_do_not_make_the_score(scores, scored):
    lines = history(*scores, problems=[0, 1, 2, 3])
    found = solved_problems(lines, "map_at_r")
    assert found == {"num_problems": 3, "scored_problem": scored}
