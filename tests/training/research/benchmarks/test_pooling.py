"""The benchmark of poolings compares what it says it compares."""

import json

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from training.research.benchmarks import pooling
from training.research.iterated_pooling import IteratedSumPooling


def test_the_papers_pooling_gives_what_gsp_gives():
    features = np.random.default_rng(0).normal(size=(2, 3, 3, 4))
    features = features.astype("float32")
    ours = gsp.layers.GeneralizedSumPooling(5)
    paper = IteratedSumPooling(5, num_rounds=50)
    expected = ours(features)
    paper.build(features.shape)
    paper.prototypes.assign(ours.prototypes)
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(paper(features)),
        keras.ops.convert_to_numpy(expected),
        atol=1e-5,
    )


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


def test_a_head_pools_where_its_recipe_does():
    made = pooling.heads(("gap", "gem"), (2, 3, 3, 8, 2, 4), "float32")
    kinds = {
        word: [type(layer).__name__ for layer in made[word].layers]
        for word in ("gap", "gem")
    }
    gem = kinds["gem"].index("GeneralizedMeanPooling")
    gap = kinds["gap"].index("GlobalAveragePooling2D")
    assert made["gem"].layers[gem].input.shape[-1] == 8
    assert made["gap"].layers[gap].input.shape[-1] == 4
    assert made["gem"].output.shape == made["gap"].output.shape == (None, 4)


def test_every_pooling_of_a_recipe_is_a_contender():
    size = (2, 3, 3, 8, 2)
    words = pooling.Settings().poolings
    made = pooling.contenders(words, size, 3, "float32")
    assert set(words) < set(made)
    assert {"gsp", "gap", "solar", "otk-large"} < set(words)
