"""From a run to an export to neighbors, by the commands of the README."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.data import ImageSet
from keras_gsp.storage.checksums import write_checksums
from tests.training.datasets import layouts
from training import export, search
from training.recipes.recipe import Recipe
from training.runs import export_run
from training.runs.export_run import Export
from training.runs.run_directory import write_json

if keras.backend.backend() != "tensorflow":
    pytest.skip("exports are TensorFlow's", allow_module_level=True)


class Exported:
    """A run of an untrained encoder on a folder of images, and its export."""

    def __init__(self, folder):
        names = [f"class{i}" for i in range(8)]
        images = layouts.folder(folder / "birds", names, images=4)
        recipe = Recipe.of(
            dataset="folder",
            data_dir=str(images),
            crop_size=16,
            backbone="glyph-cnn",
            classes_per_batch=2,
            samples_per_class=2,
        )
        self.run = folder / "runs" / "tiny"
        self.run.mkdir(parents=True)
        write_json(self.run / "settings.json", {"recipe": recipe.settings})
        write_json(self.run / "scores.json", {"map_at_r": 0.5})
        backbone = keras.Sequential(
            [keras.Input((16, 16, 3)), keras.layers.Conv2D(6, 3, strides=2)]
        )
        pooling = gsp.layers.GeneralizedSumPooling(4)
        encoder = gsp.models.build_encoder(
            backbone, embedding_size=5, pooling=pooling
        )
        encoder.save(self.run / "encoder.keras")
        self.model = folder / "model"
        export.main([str(self.run), "--output", str(self.model)])
        ids = json.loads((self.model / "metadata.json").read_text())
        self.facts = ids


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("exported")
        patch.setenv("KERAS_GSP_CACHE", str(folder / "cache"))
        yield Exported(folder)


def test_an_export_says_where_it_comes_from(exported):
    facts = exported.facts
    assert facts["run"] == "tiny"
    assert facts["recipe"]["dataset"] == "folder"
    assert facts["scores"] == {"map_at_r": 0.5}
    assert facts["crop_fraction"] == pytest.approx(227 / 256, abs=0.02)
    assert facts["gallery_size"] > 0


def gallery_files(exported):
    tf = pytest.importorskip("tensorflow")
    model = tf.saved_model.load(str(exported.model))
    first = next((exported.run.parents[1] / "birds").rglob("*.jpg"), None)
    first = first or next((exported.run.parents[1] / "birds").rglob("*.png"))
    answer = model.signatures["search_exact"](
        image_bytes=tf.constant(first.read_bytes())
    )
    return [id_.decode() for id_ in answer["ids"].numpy()]


def test_search_prints_a_table_and_draws_pictures(exported, tmp_path, capsys):
    found = gallery_files(exported)
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    grid, why = tmp_path / "grid.png", tmp_path / "why.png"
    search.main(
        [
            str(exported.model),
            found[0],
            str(tmp_path / "broken.jpg"),
            "--top",
            "3",
            "--picture",
            str(grid),
            "--weights",
            "--explain",
            str(why),
        ]
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == found[0]
    assert lines[1].split()[:2] == ["1", "0.0000"]
    assert lines[1].endswith(found[0])
    assert "broken.jpg: unreadable" in lines[4]
    assert grid.stat().st_size > 1000 and why.stat().st_size > 1000


def test_an_encoder_can_be_exported_alone(exported, tmp_path):
    target = tmp_path / "encoder"
    export.main([str(exported.run), "--index", "none", "--output", str(target)])
    facts = json.loads((target / "metadata.json").read_text())
    assert "embed" in facts["signatures"]
    with pytest.raises(SystemExit, match="encoder alone"):
        search.main([str(target), __file__])


@pytest.mark.slow
def test_a_scann_export_searches_and_is_certified(exported, tmp_path, capsys):
    pytest.importorskip("scann")
    target = tmp_path / "scann"
    export.main(
        [str(exported.run), "--index", "scann", "--output", str(target)]
    )
    facts = json.loads((target / "metadata.json").read_text())
    assert facts["search_recall"]["recall"] == 1.0
    assert facts["gallery_size"] < exported.facts["gallery_size"]
    search.main([str(target), gallery_files(exported)[0], "--ann"])
    assert len(capsys.readouterr().out.splitlines()) > 3


@pytest.mark.slow
def test_an_existing_export_is_replaced_only_if_asked(exported):
    before = (exported.model / "metadata.json").read_bytes()
    arguments = [str(exported.run), "--output", str(exported.model)]
    with pytest.raises(SystemExit, match="--overwrite"):
        export.main(arguments)
    assert (exported.model / "metadata.json").read_bytes() == before
    export.main([*arguments, "--overwrite"])
    assert (exported.model / "metadata.json").exists()


def test_every_format_has_its_own_folder():
    folders = [
        Export(run=Path("runs/mine"), format=format).target.as_posix()
        for format in ("saved_model", "onnx", "litert")
    ]
    assert folders == [
        "saved_models/mine",
        "saved_models/mine-onnx",
        "saved_models/mine-litert",
    ]


def test_bad_exports_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="settings.json"):
        export.main(["nowhere", "--index", "exact"])
    with pytest.raises(SystemExit):
        export.main(["nowhere", "--held-out", "1.5"])
    assert "held_out=1.5" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        export.main(
            ["nowhere", "--index", "none", "--false-accept-rate", "0.1"]
        )
    assert "false_accept_rate=0.1" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_bad_searches_are_refused(exported, capsys):
    model = str(exported.model)
    for arguments, message in (
        (["nowhere", __file__], "python -m training.export nowhere"),
        ([model, "nowhere.jpg"], "nowhere.jpg"),
        ([model, __file__, "--ann"], "no ScaNN index"),
        ([model, __file__], "none of the images"),
    ):
        with pytest.raises(SystemExit, match=message):
            search.main(arguments)
    with pytest.raises(SystemExit):
        search.main([model, __file__, "--top", "0"])
    assert "top=0" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        search.main([model, __file__, "--weights"])
    assert "picture=None" in capsys.readouterr().err


def test_shares_are_only_asked_of_an_export_that_has_them(exported, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(exported.model, model)
    facts = exported.facts | {"no_explain": "Its pooling is another."}
    facts["signatures"] = ["search_exact"]
    (model / "metadata.json").write_text(json.dumps(facts))
    write_checksums(model)
    with pytest.raises(SystemExit, match="`explain` and.*is another"):
        search.main([str(model), __file__, "--explain", "picture.png"])


def images_in_memory(count=10):
    pixels = np.zeros((count, 4, 4, 3), "uint8")
    return ImageSet(np.arange(count) % 2, ("a", "b"), images=pixels)


def test_held_out_images_leave_the_gallery():
    images = images_in_memory()
    splits = SimpleNamespace(test=images, gallery=None)
    settings = Export(run=Path("x"), index="scann", held_out=0.2)
    kept, held_out = export_run._gallery(settings, splits)
    assert (len(kept), len(held_out)) == (8, 2)
    assert export_run._image_ids(kept, "test")[-1] == "test/7"
    settings = Export(run=Path("x"), index="scann", held_out=0.99)
    with pytest.raises(ValueError, match="held_out=0.99"):
        export_run._gallery(settings, splits)


def test_the_gallery_keeps_the_first_images_of_each_class():
    images = images_in_memory()
    splits = SimpleNamespace(test=images, gallery=None)
    settings = Export(run=Path("x"), images_per_class=2)
    kept, _ = export_run._gallery(settings, splits)
    assert kept.labels.tolist() == [0, 1, 0, 1]


def test_a_data_set_with_queries_has_its_own_gallery():
    splits = SimpleNamespace(test="test", gallery="gallery", query="query")
    found = export_run._gallery(Export(run=Path("x")), splits)
    assert found == ("gallery", "query")
