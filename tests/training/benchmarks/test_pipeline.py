"""The pipeline benchmark measures batches, steps and both together."""

import keras
import pytest

from training.benchmarks import pipeline

if keras.backend.backend() != "tensorflow":
    pytest.skip("the pipeline is tf.data", allow_module_level=True)


@pytest.mark.slow
def test_smallest_run_prints_every_contender(capsys):
    arguments = "--crop-size 16 --backbone glyph-cnn --batches 1 --repeats 1"
    sizes = "--classes-per-batch 2 --samples-per-class 2 --made-classes 2"
    pipeline.main([*arguments.split(), *sizes.split()])
    printed = capsys.readouterr().out
    for name in (
        "batches, mlrc-area",
        "batches, mlrc",
        "batches, none",
        "step, gsp",
        "batches and step, gap",
    ):
        assert f"| {name} |" in printed
    assert "images/s | cores" in printed
