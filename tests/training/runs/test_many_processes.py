"""The guide's commands for several processes, at a tiny size."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from keras_gsp.callbacks.exact_resume.checkpoints import read_checkpoint
from tests.training.test_train import history_of
from training.runs import distribution
from training.runs.distribution import Distribution
from training.runs.run_directory import RunDirectory

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs" / "guides" / "distribute.md"
ALONE = "python -m training.train glyphs"
# Found before the other programs of that name.
PYTHON = f"""#!/bin/sh
test "$1 $2" = "-m training.train" || exit 9
shift 2
exec {sys.executable} -m tests.training.runs.many_processes "$@"
"""


def guide_commands():
    blocks = re.findall(r"```bash\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (found,) = (block for block in blocks if "PROCESS_ID=1" in block)
    assert "localhost:10001" in found
    return found.replace("10001", str(free_port()))


def free_port():
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return one.getsockname()[1]


def train(folder, commands, **environment):
    folder.mkdir(exist_ok=True)
    program = folder / "bin" / "python"
    program.parent.mkdir(exist_ok=True)
    program.write_text(PYTHON)
    program.chmod(0o755)
    own = {
        "KERAS_BACKEND": "jax",
        "PYTHONPATH": str(ROOT),
        "PATH": f"{program.parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", "-ec", commands],
        cwd=folder,
        env=os.environ | own | environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    return done, RunDirectory(next(folder.glob("runs/*")))


def facts(run):
    """History without wall times, and scores."""
    return history_of(run), run.read_scores()


def newest_checkpoint(run):
    return read_checkpoint(max(run.checkpoint.glob("*.npz")))[1]


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    folder = tmp_path_factory.mktemp("together")
    done, run = train(folder, guide_commands())
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("12 images of unseen classes") == 1
    return run


@pytest.mark.slow
def test_two_processes_train_as_one_device(together, tmp_path):
    done, alone = train(tmp_path, ALONE)
    assert done.returncode == 0, done.stderr[-2000:]
    history, scores = facts(together)
    expected, expected_scores = facts(alone)
    numbers = {k: v for k, v in scores.items() if isinstance(v, int | float)}
    others = {name: expected_scores[name] for name in numbers}
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
    begin = time.monotonic()
    done, run = train(tmp_path, guide_commands(), KILLED_AT="7")
    assert done.returncode == 1
    assert "another process of this training, has ended" in done.stderr
    assert time.monotonic() - begin < 600
    assert not run.is_finished and len(run.read_history()) == 4
    done, run = train(tmp_path, guide_commands())
    assert done.returncode == 0, done.stderr[-2000:]
    assert facts(run) == facts(together)
    found, expected = newest_checkpoint(run), newest_checkpoint(together)
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
