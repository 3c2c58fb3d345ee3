"""Runs killed at random moments end as runs that were left alone.

    python -m pytest -m slow tests/endurance/test_kills.py --kills 1000

`kill -9` ends a run in a step, in an evaluation or in the middle of a file; the
same command resumes it.
"""

import json
import multiprocessing
import random
import signal

import keras
import numpy as np
import pytest

import keras_gsp  # noqa: F401, registers the layers
from tests.endurance.killed_run import CALLS, RECIPES, train_and_die


@pytest.mark.slow
def test_killed_runs_end_as_runs_left_alone(tmp_path, request):
    wanted = request.config.getoption("--kills")
    draw, killed, alone = random.Random(wanted), 0, {}
    for number in range(wanted):
        name = list(RECIPES)[number % len(RECIPES)]
        if name not in alone:
            # A run remembers its folder's name: the same one for all.
            train(tmp_path / "whole" / name, name, "step", 0)
            alone[name] = outcome(tmp_path / "whole" / name)
        folder = tmp_path / f"killed-{number}" / name
        for _ in range(min(16, wanted - killed)):
            moment = draw.choice(list(CALLS))
            if train(folder, name, moment, draw.randint(1, 6)) == 0:
                break
            killed += 1
        else:
            train(folder, name, "step", 0)
        found, expected = outcome(folder), alone[name]
        keys = expected.keys() | found.keys()
        assert [k for k in keys if found.get(k) != expected.get(k)] == []
        if killed >= wanted:
            return


def train(folder, name, moment, number):
    """Trains in a new process: 0 where it ends, else it was killed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["training.runs.train_run"])
    arguments = str(folder), name, moment, number
    process = processes.Process(target=train_and_die, args=arguments)
    process.start()
    process.join()
    error = folder.with_suffix(".txt")
    assert not error.exists(), error.read_text()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode


def outcome(folder):
    """Name -> everything that a finished run has left, as bytes or text."""
    with np.load(max((folder / "checkpoint").glob("step-*.npz"))) as file:
        arrays = {f"checkpoint {name}": file[name] for name in file.files}
    encoder = keras.saving.load_model(folder / "encoder.keras", compile=False)
    for number, weight in enumerate(encoder.get_weights()):
        arrays[f"encoder {number}"] = weight
    found = {name: array.tobytes() for name, array in arrays.items()}
    assert len(found) > 30
    for line in (folder / "history.jsonl").read_text().splitlines():
        line = json.loads(line)
        line.pop("seconds", None)
        found |= {f"step {line['step']} {k}": repr(v) for k, v in line.items()}
    scores = json.loads((folder / "scores.json").read_text())
    return found | {f"score {k}": repr(v) for k, v in scores.items()}
