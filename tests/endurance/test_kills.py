"""Runs killed at random moments end as runs that were left alone.

    python -m pytest -m slow tests/endurance/test_kills.py --kills 1000

`kill -9` ends a run in a step, in the middle of a file, in an evaluation, in
the choice of proxies, or at any moment; the same command resumes it.
"""

import json
import multiprocessing
import random
import signal

import keras
import numpy as np
import pytest

import keras_gsp  # noqa: F401, registers the layers
from tests.endurance.killed_run import RECIPES, TWO_DEVICES, train_in_process

if keras.backend.backend() == "torch":
    pytest.skip("the batches are tf.data's", allow_module_level=True)

# Moment -> the largest number of its visits before the kill.
MOMENTS = {"step": 4, "write": 4, "evaluation": 2, "problem": 2, "any": 0}
ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
# Imported once, for all processes; none of them computes.
IMPORTED = ["tensorflow", "h5py", "training.runs.train_run"]


@pytest.mark.slow
def test_killed_runs_end_as_runs_left_alone(tmp_path, request, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "compiled"))
    wanted = request.config.getoption("--kills")
    draw, killed, alone = random.Random(wanted), 0, {}
    recipes = [r for r in RECIPES if r != TWO_DEVICES or not ON_TENSORFLOW]
    for number in range(wanted):
        name = recipes[number % len(recipes)]
        if name not in alone:
            # A run remembers its folder's name: the same one for all.
            whole = tmp_path / "whole" / name
            check_finished(train(whole, name), whole)
            alone[name] = outcome(whole)
        folder = tmp_path / f"killed-{number}" / name
        most = min(16, wanted - killed)
        moments = kill_until_finished(folder, name, draw, most)
        assert len(alone[name]) > 150
        assert different(alone[name], outcome(folder)) == [], (name, moments)
        killed += len(moments)
        print(f"{name}: killed in {', '.join(moments)}; {killed} kills so far")
        if killed >= wanted:
            return


def kill_until_finished(folder, name, draw, most):
    """Returns the moments at which the run was killed; it is finished then."""
    moments = []
    while len(moments) < most:
        moment = draw.choice(list(MOMENTS))
        if moment == "problem" and not RECIPES[name].samples_proxies:
            moment = "step"
        visit = draw.randint(1, MOMENTS[moment]) if MOMENTS[moment] else 0
        wait = draw.uniform(0, 10) if moment == "any" else None
        code = train(folder, name, moment, visit, wait)
        if code != -signal.SIGKILL:
            check_finished(code, folder)
            return moments
        moments.append(f"{moment} {visit or ''}".strip())
    check_finished(train(folder, name), folder)
    return moments


def train(folder, name, moment="any", visit=0, wait=None):
    """Trains in a new process and returns its exit code."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(IMPORTED)
    arguments = str(folder), name, 0, moment, visit, ON_TENSORFLOW
    process = processes.Process(target=train_in_process, args=arguments)
    process.start()
    process.join(wait)
    if process.is_alive():
        process.kill()
        process.join()
    return process.exitcode


def check_finished(code, folder):
    if code:
        file = folder.parent / "error.txt"
        error = file.read_text() if file.exists() else "no error of Python"
        pytest.fail(f"A run ended with exit code {code}: {error}")


def outcome(folder):
    """Name -> everything that a finished run has left, as bytes or text."""
    with np.load(max((folder / "checkpoint").glob("step-*.npz"))) as file:
        arrays = {f"checkpoint {name}": file[name] for name in file.files}
    encoder = keras.saving.load_model(folder / "encoder.keras", compile=False)
    for number, weight in enumerate(encoder.weights):
        arrays[f"encoder {number} {weight.path}"] = weight.numpy()
    found = {
        name: f"{array.dtype} {array.shape} ".encode() + array.tobytes()
        for name, array in arrays.items()
    }
    for line in (folder / "history.jsonl").read_text().splitlines():
        line = json.loads(line)
        line.pop("seconds", None)
        found |= {f"step {line['step']} {k}": repr(v) for k, v in line.items()}
    scores = json.loads((folder / "scores.json").read_text())
    return found | {f"score {k}": repr(v) for k, v in scores.items()}


def different(expected, found):
    """Names of values that differ in a bit or are missing on one side."""
    names = expected.keys() | found.keys()
    return sorted(n for n in names if expected.get(n) != found.get(n))
