"""Two processes do not train into one run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from training.runs.run_lock import FILE, RunTakenError, run_lock

HOLD = """
import sys, time
from training.runs.run_lock import run_lock
with run_lock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_training_is_refused_and_the_first_is_named(tmp_path):
    owner = f"process {os.getpid()} on "
    with run_lock(tmp_path):
        with pytest.raises(RunTakenError, match=f"one process.*{owner}"):
            with run_lock(tmp_path):
                pass
        assert (tmp_path / FILE).read_text().startswith(owner)
    # An error frees the run.
    with pytest.raises(KeyboardInterrupt), run_lock(tmp_path):
        raise KeyboardInterrupt
    with run_lock(tmp_path):
        pass


@pytest.mark.slow
def test_a_killed_process_frees_its_run_at_once(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path],
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(RunTakenError, match=f"process {process.pid} on"):
            with run_lock(tmp_path):
                pass
        process.kill()
    with run_lock(tmp_path):
        pass
