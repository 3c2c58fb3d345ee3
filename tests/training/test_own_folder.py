"""From a folder of images to scores, by the commands of the README."""

import keras
import pytest

import keras_gsp as gsp
from tests.training.datasets import layouts
from training import train
from training.recipes.recipe import Recipe
from training.research import pages, studies, study

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path, cache):
    names = [f"class{i}" for i in range(16)]
    return layouts.folder(tmp_path / "birds", names, images=3)


@pytest.mark.parametrize(
    "choice", ["--pooling gsp", "--loss proxy-anchor --warmup-steps 0"]
)
def test_the_first_command_trains_from_imagenet_weights(
    choice, folder, tmp_path, monkeypatch, capsys
):
    build = keras.applications.MobileNetV2
    asked = []

    def built(*, weights="imagenet", **arguments):
        asked.append(weights)
        return build(weights=None, **arguments)

    monkeypatch.setattr(keras.applications, "MobileNetV2", built)
    where = ["--data-dir", str(folder), "--runs", str(tmp_path)]
    few = "--steps 2 --samples-per-class 2"
    train.main(["folder", *where, *choice.split(), *few.split()])
    assert set(asked) == {"imagenet"}
    (run,) = tmp_path.glob("folder,*")
    word = choice.split()[0][2:]
    assert run.name.startswith(f"folder,{word}={choice.split()[1]},")
    printed = capsys.readouterr().out
    assert "note: Batches have all 6 training classes" in printed
    assert "python -m training.export" in printed


def test_a_study_on_cached_features(folder, tmp_path, monkeypatch, capsys):
    weights = tmp_path / "resnet20.weights.h5"
    gsp.models.resnet20((16, 16, 3)).save_weights(weights)
    base = Recipe.of(
        dataset="folder",
        backbone="resnet20",
        backbone_weights=str(weights),
        frozen="all",
        cache_features=True,
        train_classes=6,
        crop_size=16,
        embedding_size=8,
        num_prototypes=4,
        classes_per_batch=2,
        samples_per_class=2,
        steps=2,
        steps_per_evaluation=1,
    )
    methods = "gap", "gsp-zsr"
    tiny = studies.grid("tiny", base, [(("c2",), methods)], seeds=1)
    monkeypatch.setitem(studies.STUDIES, "tiny", tiny)
    study.main(["tiny", "--data-dir", str(folder), "--runs", str(tmp_path)])
    pages.main([str(tmp_path / "tiny"), "--show"])
    printed = capsys.readouterr().out
    for method in methods:
        assert f"| c2 | {method} |" in printed
    assert "| rate |" in printed
