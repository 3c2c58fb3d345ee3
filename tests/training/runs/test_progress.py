"""Progress of a run, what it logs, and which evaluation is its best."""

import re

import keras
import numpy as np
import pytest

from training.runs import progress
from training.runs.progress import (
    ProgressBar,
    best_evaluation,
    solved_problems,
)


class Score(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs):
        logs["val_map_at_r"] = 0.5 / (epoch + 1)


def test_in_a_log_an_evaluation_is_a_line(capfd, monkeypatch):
    # The bar decides by the stream, whatever the environment says of bars.
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    monkeypatch.setattr(progress, "FIRST_LINE", 0.0)
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(
        np.zeros((20, 2)),
        np.zeros(20),
        batch_size=2,
        epochs=2,
        verbose=0,
        callbacks=[Score(), ProgressBar("try", 10)],
    )
    out, err = capfd.readouterr()
    pace, *lines, last = out.splitlines()
    assert re.fullmatch(r"try: step 2 of 20, \S+ s a step, 0.\d min left", pace)
    facts = "try: 3 of 3 parameters trained, peak memory "
    assert last.startswith(facts) and last.endswith(" MB")
    assert lines == [
        "try: step 10, loss 0.000, val_map_at_r 0.500, best 0.500",
        "try: step 20, loss 0.000, val_map_at_r 0.250, best 0.500",
    ]
    assert "try" not in err
    model.fit(
        np.zeros((2, 2)),
        np.zeros(2),
        epochs=0,
        verbose=0,
        callbacks=[ProgressBar("try", 10)],
    )
    assert capfd.readouterr().out == "try: nothing trained, 0 steps\n"


def history(*scores, problems):
    return [
        {"step": 10 * i + 10, "val_map_at_r": score, "ccp_problem": problem}
        for i, (score, problem) in enumerate(zip(scores, problems, strict=True))
    ]


@pytest.mark.parametrize(
    "scores, step, scored",
    [
        ((0.1, 0.3, 0.2), 20, 1),
        ((0.3, 0.3), 10, 0),
        ((np.nan, 0.1, np.nan), 20, 1),
        ((0.1, 0.2, 0.3, 0.1), 30, 2),
    ],
)
def test_the_first_of_the_best_is_kept_and_its_problem(scores, step, scored):
    lines = history(*scores, problems=range(len(scores)))
    assert best_evaluation(lines, "map_at_r")["step"] == step
    others = [line | {"val_precision_at_1": line["step"]} for line in lines]
    assert best_evaluation(others, "precision_at_1") == others[-1]
    assert solved_problems(lines, "map_at_r") == {
        "num_problems": len(scores) - 1,
        "scored_problem": scored,
    }
