"""The benchmark of poolings compares what it says it compares."""

import json

import pytest

from training.research.benchmarks import pooling


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_pooling_is_timed_forward_and_backward(dtype, capsys, tmp_path):
    file = tmp_path / "new" / "poolings.json"
    words = ("gap", "gem", pooling.OURS, "netvlad")
    pooling.main(
        ["--sizes", "2", "3", "3", "8", "2", "--dtypes", dtype]
        + ["--heads", "2", "3", "3", "8", "2", "4"]
        + ["--xla", "False", "--num-rounds", "3", "--poolings", *words]
        + ["--repeats", "1", "--seconds", "0.001", "--json", str(file)]
    )
    printed = capsys.readouterr().out
    names = (pooling.UNIT, *words, "paper's 3 rounds")
    for name in names:
        assert f"| {name} |" in printed
    maps, head = json.loads(file.read_text())["tables"]
    assert [row[0] for row in maps["rows"]] == list(names)
    assert [row[0] for row in head["rows"]] == list(names[:-1])
    column = head["headings"].index("parameters")
    parameters = {row[0]: int(row[column]) for row in head["rows"]}
    # The projection, and what GSP adds.
    assert parameters[pooling.UNIT] == 8 * 4
    assert parameters["gap"] == 8 * 4 + 4
    assert parameters["gsp"] == parameters["gap"] + 2 * 4


def test_every_pooling_of_a_recipe_is_a_contender():
    size = (2, 3, 3, 8, 2)
    words = pooling.Settings().poolings
    made = pooling.contenders(words, size, 3, "float32")
    assert set(words) < set(made)
    assert {"gsp", "gap", "solar", "otk-large"} < set(words)
