"""The benchmark of poolings compares what it says it compares."""

import json

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from training.research.benchmarks import pooling
from training.research.benchmarks.iterated_pooling import IteratedSumPooling


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
    found = json.loads(file.read_text())["tables"][0]["numbers"]
    assert found["size"] == [2, 3, 3, 8, 2]
    assert tuple(found["poolings"]) == names
    assert found["poolings"][pooling.UNIT]["time"] == 1.0
    assert found["poolings"]["gap"]["parameters"] == 0
    head = json.loads(file.read_text())["tables"][1]["numbers"]
    assert head["is_head"] and not found["is_head"]
    assert tuple(head["poolings"]) == names[:-1]
    # The projection and what GSP has of its own.
    projected = head["poolings"]["gap"]["parameters"]
    assert projected == 8 * 4 + 4
    assert head["poolings"][pooling.UNIT]["parameters"] == 8 * 4
    assert head["poolings"]["gsp"]["parameters"] == projected + 2 * 4
    if keras.backend.backend() == "jax":
        assert found["poolings"][pooling.UNIT]["memory"] == 1.0


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
