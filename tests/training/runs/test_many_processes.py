"""Two processes train as one, at a tiny size; see the guide `distribute`."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from keras_gsp.callbacks.exact_resume.checkpoints import read_checkpoint
from tests.training.test_train import history_of
from training.runs import distribution
from training.runs.distribution import Distribution
from training.runs.run_directory import RunDirectory

ROOT = Path(__file__).parents[3]
TRAIN = [sys.executable, "-m", "tests.training.runs.many_processes", "glyphs"]


def train(folder, *options, processes=1, **environment):
    """Output, errors and exit status of each process, and the run."""
    folder.mkdir(exist_ok=True)
    environment |= {"KERAS_BACKEND": "jax", "PYTHONPATH": str(ROOT)}
    if processes > 1:
        with socket.socket() as free:
            free.bind(("localhost", 0))
            address = f"localhost:{free.getsockname()[1]}"
        environment[distribution.NUM_PROCESSES] = str(processes)
        environment[distribution.ADDRESSES] = address
    started = [
        subprocess.Popen(
            [*TRAIN, *options],
            cwd=folder,
            env=os.environ | environment | {distribution.PROCESS_ID: str(i)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(processes)
    ]
    done = [(*one.communicate(timeout=900), one.returncode) for one in started]
    return done, RunDirectory(next(folder.glob("runs/*")))


def both(folder, **environment):
    words = "--distribution", "data"
    return train(folder, *words, processes=2, **environment)


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    done, run = both(tmp_path_factory.mktemp("together"))
    assert [status for *_, status in done] == [0, 0], done
    printed = [
        output.count("12 images of unseen classes") for output, *_ in done
    ]
    assert printed == [1, 0]
    return run


@pytest.mark.slow
def test_two_processes_train_as_one_device(together, tmp_path):
    _, alone = train(tmp_path)
    history, expected = history_of(together), history_of(alone)
    scores, others = together.read_scores(), alone.read_scores()
    numbers = {k: v for k, v in scores.items() if isinstance(v, int | float)}
    others = {name: others[name] for name in numbers}
    assert numbers == pytest.approx(others, abs=1e-6)
    assert scores["num_problems"] == 2
    # The evaluation before the first step, and five.
    assert len(history) == len(expected) == 6
    for line, other in zip(history[1:], expected[1:], strict=True):
        assert line["loss"] == pytest.approx(other["loss"], rel=2e-6)
        assert line == pytest.approx(other, rel=1e-5)
    settings = json.loads(together.settings.read_text())
    assert settings["distribution"] == "data on 2 devices of 2 processes"


@pytest.mark.slow
def test_a_killed_process_ends_the_run_which_resumes_bit_by_bit(
    together, tmp_path
):
    ((_, errors, status), _), run = both(tmp_path, KILLED_AT="7")
    assert status == 1
    assert "another process of this training, has ended" in errors
    assert not run.is_finished and len(run.read_history()) == 4
    both(tmp_path)
    assert history_of(run) == history_of(together)
    assert run.read_scores() == together.read_scores()
    found, expected = (
        read_checkpoint(max(one.checkpoint.glob("*.npz")))[1]
        for one in (run, together)
    )
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize(
    ("number", "addresses"),
    [("2", "localhost:1"), ("", "localhost:1"), ("0", ""), ("0", "host")],
)
def test_processes_that_cannot_meet_are_refused(monkeypatch, number, addresses):
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    monkeypatch.setenv(distribution.NUM_PROCESSES, "2")
    monkeypatch.setenv(distribution.PROCESS_ID, number)
    monkeypatch.setenv(distribution.ADDRESSES, addresses)
    with pytest.raises(ValueError, match=f"ID={number}"):
        with Distribution("data").together():
            pass
