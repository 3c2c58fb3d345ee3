"""The short form of `training.research.campaigns.kills`."""

import json
import os
import subprocess
import sys

import keras
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("the batches are tf.data's", allow_module_level=True)

from training.research.campaigns import killed_run, kills
from training.research.report import run_measurement


@pytest.mark.slow
def test_runs_killed_twice_end_as_those_left_alone(tmp_path, capsys):
    record = tmp_path / "kills.json"
    options = ["--eager", "--runs", "1", "--kills", "2", "--json", str(record)]
    for _ in range(2):
        run_measurement(kills, options)
    assert "| all | 2 | 4 |" in capsys.readouterr().out
    table, moments, stretches = json.loads(record.read_text())["tables"]
    assert sum(int(count) for _, count in moments["rows"]) == 4
    assert len(stretches["rows"]) == 2
    recipes = [row[0] for row in table["rows"]]
    assert recipes == ["CCP, eager", "CCP, recent pool, eager", "all"]
    column = table["headings"].index("values compared")
    assert int(table["rows"][0][column]) > 300
    assert table["rows"][-1][-1] == "0"
    with pytest.raises(SystemExit, match="`json` must be a new file"):
        run_measurement(kills, [*options, "--seed", "3"])


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_processes_are_forked_before_anything_is_computed(backend):
    imports = "\n".join(f"import {name}" for name in kills.IMPORTED)
    state = {
        "tensorflow": "from tensorflow.python.eager import context\n"
        "assert context.context()._context_handle is None",
        "jax": "import jax\nassert not jax._src.xla_bridge._backends",
    }
    subprocess.run(
        [sys.executable, "-c", f"{imports}\n{state[backend]}"],
        env=os.environ | {"KERAS_BACKEND": backend},
        check=True,
    )


def test_a_bit_that_differs_or_is_missing_is_found():
    whole = {"a": b"\x00", "b": b"\x01", "c": b"\x02"}
    assert kills.differences(whole, dict(whole)) == []
    assert kills.differences(whole, {"a": b"\x00", "b": b"\x03"}) == ["b", "c"]
    assert kills.differences({}, whole) == ["a", "b", "c"]


def test_the_error_of_a_failing_run_is_reported(tmp_path):
    folder = tmp_path / "a" / "ccp"
    with pytest.raises(KeyError):
        killed_run.train_silently(str(folder), "unknown", 0)
    told = r"kills in step 2, any\. Its error:(.|\n)*KeyError: 'unknown'"
    with pytest.raises(RuntimeError, match=told):
        kills._require_finished(1, folder, ["step 2", "any"])
    with pytest.raises(
        RuntimeError, match="-11. Its error:\nno error of Python"
    ):
        kills._require_finished(-11, tmp_path / "b" / "ccp")
