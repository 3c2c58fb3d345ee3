"""Progress of a run, what it logs, and which evaluation is its best."""

import types

import keras
import numpy as np
import pytest

from training.runs.callbacks import History, solved_problems
from training.runs.run_directory import RunDirectory


class Score(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs):
        logs["val_map_at_r"] = 0.5 / (epoch + 1)


def test_in_a_log_an_evaluation_is_a_line(tmp_path, capfd, monkeypatch):
    # The bar decides by the stream, whatever the environment says of bars.
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    data = {"x": np.zeros((20, 2)), "y": np.zeros(20), "verbose": 0}
    scores = types.SimpleNamespace(scores={"map_at_r": 0.4})
    run = RunDirectory(tmp_path)
    history = History("try", run, 10, scores)
    model.fit(**data, batch_size=2, epochs=2, callbacks=[Score(), history])
    assert [line["step"] for line in run.read_history()] == [0, 10, 20]
    out, err = capfd.readouterr()
    *lines, last = out.splitlines()
    assert last == "try: 3 of 3 parameters trained"
    assert lines == [
        "try: step 10, loss 0.000, val_map_at_r 0.500, best 0.500 (step 10)",
        "try: step 20, loss 0.000, val_map_at_r 0.250, best 0.500 (step 10)",
    ]
    assert "try" not in err
    model.fit(**data, epochs=0, callbacks=[history])
    assert capfd.readouterr().out == "try: nothing trained, 0 steps\n"


@pytest.mark.parametrize(
    "scores, scored",
    [
        ((0.1, 0.3, 0.2), 1),
        ((0.3, 0.3), 0),
        ((np.nan, 0.1, np.nan), 1),
        ((0.1, 0.2, 0.3, 0.1), 2),
    ],
)
def test_the_problem_of_the_first_of_the_best_is_scored(scores, scored):
    lines = [
        {"val_map_at_r": score, "ccp_problem": problem}
        for problem, score in enumerate(scores)
    ]
    last = len(scores) - 1
    expected = {"num_problems": last, "scored_problem": scored}
    assert solved_problems(lines) == expected
