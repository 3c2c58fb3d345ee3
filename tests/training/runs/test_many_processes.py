"""Two processes train as one, at a tiny size; see the guide `distribute`."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.test_train import history_of
from training.runs import distribution
from training.runs.distribution import Distribution
from training.runs.run_directory import RunDirectory

ROOT = Path(__file__).parents[3]
TRAIN = [sys.executable, "-m", "tests.training.runs.many_processes", "glyphs"]


def train(folder, processes=1, **environment):
    """Output, errors and exit status of each process, and the run."""
    folder.mkdir(exist_ok=True)
    words = []
    environment |= {"KERAS_BACKEND": "jax", "PYTHONPATH": str(ROOT)}
    if processes > 1:
        words = ["--distribution", "data"]
        with socket.socket() as free:
            free.bind(("localhost", 0))
            address = f"localhost:{free.getsockname()[1]}"
        environment[distribution.NUM_PROCESSES] = str(processes)
        environment[distribution.ADDRESSES] = address
    started = [
        subprocess.Popen(
            [*TRAIN, *words],
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


@pytest.mark.slow
def test_two_processes_of_which_one_was_killed_train_as_one_device(tmp_path):
    together = tmp_path / "together"
    ((_, errors, status), _), run = train(together, 2, KILLED_AT="7")
    assert status == 1
    assert "another process of this training, has ended" in errors
    assert not run.is_finished and len(run.read_history()) == 4
    done, _ = train(together, 2)
    assert [status for *_, status in done] == [0, 0], done
    # The first alone prints the scores.
    counts = [text.count("12 images of unseen classes") for text, *_ in done]
    assert counts == [1, 0]
    _, whole = train(tmp_path / "whole", 2)
    assert history_of(run) == history_of(whole)
    assert run.read_scores() == whole.read_scores()
    _, other = train(tmp_path / "alone")
    history, expected = history_of(run), history_of(other)
    scores, others = run.read_scores(), other.read_scores()
    numbers = {k: v for k, v in scores.items() if isinstance(v, int | float)}
    others = {name: others[name] for name in numbers}
    assert numbers == pytest.approx(others, abs=1e-6)
    assert scores["num_problems"] == 2
    # The evaluation before the first step, and five.
    assert len(history) == len(expected) == 6
    for line, other in zip(history[1:], expected[1:], strict=True):
        assert line["loss"] == pytest.approx(other["loss"], rel=2e-6)
        assert line == pytest.approx(other, rel=1e-5)
    settings = json.loads(run.settings.read_text())
    assert settings["distribution"] == "data on 2 devices of 2 processes"


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
