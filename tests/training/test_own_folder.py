"""From a folder of images to scores, by the commands of the README."""

import keras
import pytest

from tests.training.datasets import layouts
from training import train

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path, cache):
    names = [f"class{i}" for i in range(16)]
    return layouts.folder(tmp_path / "birds", names, images=3)


@pytest.mark.parametrize(
    ("recipe", "choice"),
    [
        ("folder", "--pooling gsp"),
        # Of the same network, its features are computed once.
        ("folder-features", "--loss proxy-anchor --warmup-steps 0"),
    ],
)
def test_the_first_command_trains_from_imagenet_weights(
    recipe, choice, folder, tmp_path, monkeypatch, capsys
):
    build = keras.applications.MobileNetV2
    asked = []

    def built(*, weights="imagenet", **arguments):
        asked.append(weights)
        return build(weights=None, **arguments)

    monkeypatch.setattr(keras.applications, "MobileNetV2", built)
    where = ["--data-dir", str(folder), "--runs", str(tmp_path)]
    few = "--steps 2 --steps-per-evaluation 2 --samples-per-class 2"
    train.main([recipe, *where, *choice.split(), *few.split()])
    assert set(asked) == {"imagenet"}
    (run,) = tmp_path.glob(f"{recipe},*")
    word = choice.split()[0][2:]
    assert run.name.startswith(f"{recipe},{word}={choice.split()[1]},")
    printed = capsys.readouterr().out
    assert "note: Batches have all 6 training classes" in printed
    assert "python -m training.export" in printed
