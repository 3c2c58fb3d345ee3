"""`kill -9` at any moment, then the same command: the same final weights."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np
import pytest

SCRIPT = "tests.callbacks.exact_resume.killed_run"
ROOT = Path(__file__).parents[3]


def start(folder, *arguments):
    environment = os.environ | {"KERAS_BACKEND": "tensorflow"}
    return subprocess.Popen(
        [sys.executable, "-m", SCRIPT, folder, *map(str, arguments)],
        cwd=ROOT,
        env=environment,
    )


def run(folder, *arguments):
    return start(folder, *arguments).wait()


def kill_from_outside(folder, seconds):
    """Waits for the next checkpoint, a little longer, and kills."""
    process, before = start(folder), checkpoints(folder)
    while process.poll() is None and checkpoints(folder) == before:
        time.sleep(0.01)
    time.sleep(seconds)
    process.kill()
    return process.wait()


def checkpoints(folder):
    return sorted(
        path.name for path in (folder / "checkpoint").glob("step-*.npz")
    )


@pytest.mark.slow
@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="the script needs tf.data"
)
def test_a_run_killed_again_and_again_ends_bit_identical(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    assert run(whole) == 0
    draw = random.Random(0)
    # Steps 0-3 are before the first checkpoint; every kill is later than the
    # one before, so that each process gets further.
    assert run(killed, "--kill-at-step", draw.randrange(4)) == -9
    assert checkpoints(killed) == []
    assert run(killed, "--kill-in-write", 2) == -9
    assert checkpoints(killed) == ["step-000000004.npz"]
    assert kill_from_outside(killed, draw.random() * 0.1) == -9
    assert run(killed, "--kill-at-step", draw.randrange(20, 24)) == -9
    assert run(killed, "--kill-in-pool", 3) == -9
    assert run(killed) == 0
    with (
        np.load(whole / "final.npz") as expected,
        np.load(killed / "final.npz") as reached,
    ):
        assert expected["problem"] >= 3
        assert reached.files == expected.files
        assert len(expected.files) > 60
        for name in expected.files:
            np.testing.assert_array_equal(
                reached[name], expected[name], err_msg=name
            )
