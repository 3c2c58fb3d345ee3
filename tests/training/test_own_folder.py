"""From a folder of images to scores, by the commands of the README."""

import keras
import pytest

from tests.training.datasets import layouts
from training import train

pytestmark = pytest.mark.slow


def test_the_first_command_trains_from_imagenet_weights(
    tmp_path, cache, monkeypatch, capsys
):
    names = [f"class{i}" for i in range(16)]
    folder = layouts.folder(tmp_path / "birds", names, images=3)
    build = keras.applications.MobileNetV2
    asked = []

    def built(*, weights="imagenet", **arguments):
        asked.append(weights)
        return build(weights=None, **arguments)

    monkeypatch.setattr(keras.applications, "MobileNetV2", built)
    where = ["--data-dir", str(folder), "--runs", str(tmp_path)]
    few = "--steps 2 --steps-per-evaluation 2 --samples-per-class 2"
    train.main(["folder", *where, "--pooling", "gsp", *few.split()])
    assert set(asked) == {"imagenet"}
    (run,) = tmp_path.glob("folder,*")
    assert run.name.startswith("folder,pooling=gsp,")
    printed = capsys.readouterr().out
    assert "note: Batches have all 6 training classes" in printed
    assert "python -m training.export" in printed
