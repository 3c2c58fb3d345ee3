"""The short form of `training.research.campaigns.kills`."""

import json

import keras
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("the batches are tf.data's", allow_module_level=True)

from training.research.campaigns import killed_run, kills


@pytest.mark.slow
def test_a_run_killed_twice_ends_as_the_one_left_alone(tmp_path, capsys):
    record = tmp_path / "kills.json"
    options = ["--runs", "1", "--kills", "2", "--seed", "1"]
    kills.main([*options, "--json", str(record)])
    assert "| all | 1 | 2 | 2 |" in capsys.readouterr().out
    kept = json.loads(record.read_text())
    table, moments = kept["tables"]
    assert sum(int(count) for _, count in moments["rows"]) == 2
    column = table["headings"].index("values compared")
    assert int(table["rows"][0][column]) > 300
    assert table["rows"][-1][-1] == "0"
    assert kept["settings"]["seed"] == 1


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
