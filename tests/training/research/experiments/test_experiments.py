"""Every experiment runs at tiny sizes and leaves a record with a page."""

import importlib

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("experiments train on TensorFlow", allow_module_level=True)

from tests.training.datasets import layouts
from training.recipes.backbone import build_backbone
from training.research.experiments import (
    cifar_classifier,
    two_looks,
    whitening,
)
from training.research.pages import pages
from training.research.report import Table, read_record, run_measurement
from training.research.studies import base_of
from training.runs.raw_baseline import POOLINGS

pytestmark = pytest.mark.slow
EXPERIMENTS = """
dominant_prototypes proxy_geometry synthetic_tokens transport_toy
zero_shot_prediction
"""


@pytest.mark.parametrize("name", EXPERIMENTS.split())
def test_a_smoke_run_repeats_itself_and_has_a_page(name, tmp_path, monkeypatch):
    module = importlib.import_module(f"training.research.experiments.{name}")
    monkeypatch.setenv("KERAS_GSP_CACHE", str(tmp_path / "cache"))
    records = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        path = folder / "docs" / f"{name}.json"
        run_measurement(module, ["--smoke", "--json", str(path)])
        records.append(read_record(path))
        assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
        found = pages(path.parent)
        page = found[f"{name}.md"]
        for table in records[-1]["tables"]:
            assert Table(**table).markdown() in page
        assert f"({name}.png)" in page and str(folder) not in page
    first, second = (keras.tree.flatten(one["results"]) for one in records)
    assert first == second


def test_second_looks_are_measured_beside_other_boxes(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_GSP_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "two_looks.json"
    run_measurement(two_looks, ["--smoke", "--json", str(path)])
    rows = {row["name"]: row for row in read_record(path)["results"]["rows"]}
    for name in ("box of GSP", "box of random"):
        assert 0 <= rows[name]["hit"] <= 100
        assert rows[name]["over"] == "GSP, whole" and "sum" in rows[name]
    assert rows["box of center"]["hit"] == 0


def test_closed_forms_are_scored_beside_raw_features(tmp_path, monkeypatch):
    def small(shape, **_):
        convolution = keras.layers.Conv2D(8, 4, strides=4)
        return keras.Sequential([keras.Input(shape), convolution])

    monkeypatch.setattr(keras.applications, "MobileNetV2", small)
    layouts.folder(tmp_path / "images", list("abcdefgh"), images=4)
    path = tmp_path / "whitening.json"
    arguments = ["--smoke", "--data-dirs", str(tmp_path / "images")]
    run_measurement(whitening, [*arguments, "--json", str(path)])
    ((title, rows),) = read_record(path)["results"]["sets"].items()
    assert title == "images: 8 classes, 32 images"
    named = {row["name"]: row for row in rows}
    assert named["best pooling"]["chosen"][0] in POOLINGS
    assert "gain" not in named["best pooling"]
    for name in ("average", "PCA", "whitened, 0.9", "whitened, chosen"):
        low, high = named[name]["gain"][1:]
        assert low <= named[name]["gain"][0] <= high
    scores = {row["map_at_r"] for row in rows}
    assert len(scores) > 2 and all(0 < score <= 1 for score in scores)


def test_the_classifier_of_pictures_pretrains_the_network(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("KERAS_GSP_CACHE", str(tmp_path / "cache"))
    for side, count in (("train", 20), ("test", 5)):
        layouts.folder(tmp_path / "images" / side, list("abcd"), images=count)
    path, weights = (
        tmp_path / "cifar_classifier.json",
        tmp_path / "x.weights.h5",
    )
    arguments = ["--smoke", "--json", str(path), "--weights", str(weights)]
    arguments += ["--data-dir", str(tmp_path / "images")]
    run_measurement(cifar_classifier, arguments)
    assert read_record(path)["results"]["held_out"] == 20
    plain = base_of("cifar-collages")
    recipe = plain.with_(backbone_weights=str(weights))
    one, same, random = (
        build_backbone(own, (64, 64, 3)) for own in (recipe, recipe, plain)
    )
    assert one.output_shape == (None, 16, 16, 64)
    images = np.full((1, 64, 64, 3), 90, "uint8")
    found = one.predict(images, verbose=0)
    np.testing.assert_array_equal(found, same.predict(images, verbose=0))
    assert np.abs(found - random.predict(images, verbose=0)).max() > 1e-3
