"""The benchmark of poolings compares what it says it compares."""

import json

from training.research.benchmarks import pooling


def test_every_pooling_is_timed_forward_and_backward(capsys, tmp_path):
    file = tmp_path / "new" / "poolings.json"
    words = ("gap", "gem", pooling.OURS, "netvlad")
    pooling.main(
        ["--sizes", "2", "3", "3", "8", "2", "--heads"]
        + ["2", "3", "3", "8", "2", "4", "--xla", "False", "--num-rounds", "3"]
        + ["--poolings", *words, "--repeats", "1", "--seconds", "0.001"]
        + ["--json", str(file)]
    )
    names = [pooling.UNIT, *words, "paper's 3 rounds"]
    printed = capsys.readouterr().out
    assert all(f"| {name} |" in printed for name in names)
    tables = json.loads(file.read_text())["tables"]
    for dtype, maps, head in zip(
        pooling.POLICIES, tables[:2], tables[2:], strict=True
    ):
        assert dtype in maps["title"] and dtype in head["title"]
        assert [row[0] for row in maps["rows"]] == names
        assert [row[0] for row in head["rows"]] == names[:-1]
        column = head["headings"].index("parameters")
        parameters = {row[0]: int(row[column]) for row in head["rows"]}
        # The projection, and what GSP adds.
        assert parameters[pooling.UNIT] == 8 * 4
        assert parameters["gap"] == 8 * 4 + 4
        assert parameters["gsp"] == parameters["gap"] + 2 * 4


def test_every_pooling_of_a_recipe_is_a_contender():
    size = (2, 3, 3, 8, 2)
    words = pooling.Settings().poolings
    made = pooling.contenders(words, size, 3)
    assert set(words) < set(made)
    assert {"gsp", "gap", "solar", "otk-large"} < set(words)
