"""Two processes do not train into one run."""

import subprocess
import sys
from pathlib import Path

import pytest

from training.runs.run_lock import FILE, RunLock, RunTakenError

HOLD = """
import sys, time
from training.runs.run_lock import RunLock
with RunLock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def other(tmp_path):
    """Another process that holds the folder."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path],
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_process_is_refused_and_the_first_one_is_named(
    other, tmp_path
):
    owner = f"process {other.pid} on "
    with pytest.raises(RunTakenError, match=f"one process.*{owner}"):
        with RunLock(tmp_path):
            pass
    assert (tmp_path / FILE).read_text().startswith(owner)


def test_a_run_whose_process_was_killed_is_free_at_once(other, tmp_path):
    other.kill()
    other.wait()
    assert (tmp_path / FILE).exists()
    with RunLock(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_an_error_frees_the_run_too(tmp_path):
    with pytest.raises(KeyboardInterrupt), RunLock(tmp_path):
        raise KeyboardInterrupt
    with RunLock(tmp_path):
        pass


def test_a_folder_that_went_away_is_let_go(tmp_path):
    folder = tmp_path / "x"
    folder.mkdir()
    with RunLock(folder):
        folder.rename(tmp_path / "y")
    assert not folder.exists()
    with RunLock(tmp_path / "y"):
        pass
