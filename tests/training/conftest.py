"""Tiny runs of untrained encoders and one export, made once a session."""

import functools
import json
import shutil

import keras
import pytest

import keras_gsp as gsp
from tests.training.datasets import layouts

SIZE = 24
# Files are read by tf.data, exports are TensorFlow's.
if keras.backend.backend() != "tensorflow":
    collect_ignore_glob = ["*"]


class Tiny:
    """Ten classes of four noise images, and what is made from them."""

    hostile = 'x<script>document.title="broken"<!--'

    def __init__(self, folder):
        self.folder = folder
        names = [f"class <{i}>" for i in range(9)]
        names.append(self.hostile)
        self.images = layouts.folder(folder / "birds", names, images=4)

    def run(self, pooling="gsp", seed=0):
        """A run directory with settings, history, scores and encoder."""
        from training.recipes.recipe import Recipe
        from training.runs.run_directory import write_json

        path = self.folder / "runs" / f"{pooling}-{seed}"
        if path.exists():
            return path
        path.mkdir(parents=True)
        recipe = Recipe.of(
            dataset="folder",
            data_dir=str(self.images),
            crop_size=SIZE,
            resize=27,
            pooling=pooling,
            classes_per_batch=2,
            samples_per_class=2,
            seed=seed,
        )
        write_json(path / "settings.json", {"recipe": recipe.settings})
        ends = {"lower_map_at_r": 0.4, "upper_map_at_r": 0.6}
        write_json(path / "scores.json", {"map_at_r": 0.5, **ends})
        lines = [
            {"step": step, "loss": 1 / step, "val_map_at_r": 0.1}
            for step in (100, 200)
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (path / "history.jsonl").write_text(text)
        keras.utils.set_random_seed(seed)
        backbone = [
            keras.Input((SIZE, SIZE, 3)),
            keras.layers.Conv2D(6, 3, strides=4),
        ]
        layer = gsp.layers.GeneralizedSumPooling(5, name="pooling")
        encoder = gsp.models.build_encoder(
            keras.Sequential(backbone),
            embedding_size=6,
            pooling=layer if pooling == "gsp" else None,
            preprocessing=gsp.data.Preprocessing(SIZE, 27),
        )
        encoder.save(path / "encoder.keras")
        return path

    def copied(self, folder, pooling="gsp", **settings):
        """A copy of a run, whose recipe has other settings."""
        run = folder / "run"
        shutil.copytree(self.run(pooling), run)
        found = json.loads((run / "settings.json").read_text())
        found["recipe"] |= settings
        (run / "settings.json").write_text(json.dumps(found))
        return run

    @functools.cached_property
    def search(self):
        """The export of the run with GSP, whose folder is `search.folder`."""
        from training import export
        from training.search import ExportSearch

        model = self.folder / "model"
        export.main([str(self.run()), "--output", str(model)])
        return ExportSearch(model, str(self.images))


@pytest.fixture(scope="session")
def tiny_once(tmp_path_factory):
    return Tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def tiny(tiny_once, monkeypatch):
    monkeypatch.setenv("KERAS_GSP_CACHE", str(tiny_once.folder / "cache"))
    return tiny_once
