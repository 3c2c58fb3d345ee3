"""A lock names who holds it and ends with its process."""

import os
import signal
import subprocess
import sys

import pytest

from keras_gsp.storage import one_process as module
from keras_gsp.storage.one_process import one_process

# The module alone: the package takes seconds to import.
HOLDER = """
import runpy, sys, time
one_process = runpy.run_path(sys.argv[1])["one_process"]
with one_process(sys.argv[2]):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_a_second_process_is_refused_by_name_until_the_first_ends(tmp_path):
    path = tmp_path / "new" / "collection"
    with one_process(path):
        with pytest.raises(RuntimeError, match=f"process {os.getpid()} on"):
            with one_process(path):
                pass
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, module.__file__, str(path)],
        stdout=subprocess.PIPE,
    )
    assert holder.stdout.readline() == b"locked\n"
    with pytest.raises(RuntimeError, match=f"process {holder.pid} on"):
        with one_process(path):
            pass
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with one_process(path):
        assert not path.exists()
