"""The benchmark of poolings compares what it says it compares."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from training.benchmarks import pooling
from training.benchmarks.iterated_pooling import IteratedSumPooling


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
def test_every_pooling_is_timed_forward_and_backward(dtype, capsys):
    pooling.main(
        ["--sizes", "2", "3", "3", "4", "2", "--dtypes", dtype]
        + ["--xla", "False", "--num-rounds", "3"]
        + ["--repeats", "1", "--seconds", "0.001"]
    )
    printed = capsys.readouterr().out
    for name in (pooling.UNIT, "GAP", "GeM", pooling.OURS, "paper's 3 rounds"):
        assert f"| {name} |" in printed
