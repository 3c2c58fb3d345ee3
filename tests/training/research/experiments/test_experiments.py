"""Every experiment runs at tiny sizes and leaves a record with a page."""

import importlib

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("experiments train on TensorFlow", allow_module_level=True)

from tests.training.datasets import layouts
from training.recipes.backbone import build_backbone
from training.recipes.data import load_splits
from training.research.experiments import adapt, cifar_classifier
from training.research.pages import pages
from training.research.report import Table, read_record, run_measurement
from training.research.studies import base_of

pytestmark = pytest.mark.slow
EXPERIMENTS = """
dominant_prototypes guarantee proxy_geometry synthetic_tokens transport_toy
upgrade zero_shot_prediction
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
        page = found.get(f"{name}.md") or found["retrieval.md"]
        for table in records[-1]["tables"]:
            assert Table(**table).markdown() in page
        assert f"({name}.png)" in page and str(folder) not in page
    first, second = (keras.tree.flatten(one["results"]) for one in records)
    if name == "guarantee":
        # Heads train on several threads: the last bits of their sums differ,
        # and with them a distance at the edge of a list.
        assert len(first) == len(second)
        for one, two in zip(first, second, strict=True):
            is_text = isinstance(one, str)
            assert one == (two if is_text else pytest.approx(two, rel=0.02))
    else:
        assert first == second


def test_planted_errors_are_found_in_noise(tmp_path):
    from training.research.experiments import planted_errors

    path = tmp_path / "planted_errors.json"
    run_measurement(planted_errors, ["--smoke", "--json", str(path)])
    (table,) = read_record(path)["tables"]
    assert len(table["rows"]) == 2 * len(planted_errors.KINDS)
    assert planted_errors.KINDS.keys() == {row[0] for row in table["rows"]}
    page = pages(path.parent)["robustness.md"]
    assert "| copy, encoded again | whitened |" in page


def test_the_classifier_of_pictures_pretrains_the_network(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("KERAS_GSP_CACHE", str(tmp_path / "cache"))
    for side in ("train", "test"):
        layouts.folder(tmp_path / "images" / side, list("abcd"), images=2)
    path, weights = (
        tmp_path / "cifar_classifier.json",
        tmp_path / "x.weights.h5",
    )
    arguments = ["--smoke", "--json", str(path), "--weights", str(weights)]
    arguments += ["--data-dir", str(tmp_path / "images")]
    run_measurement(cifar_classifier, arguments)
    assert read_record(path)["results"]["held_out"] == 8
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


def test_the_ways_to_adapt_run_on_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_GSP_CACHE", str(tmp_path / "cache"))
    random = np.random.default_rng(0)
    for label in range(32):
        (tmp_path / "images" / str(label)).mkdir(parents=True)
        for number in range(3):
            pixels = random.integers(0, 255, (32, 32, 3), "uint8")
            path = tmp_path / "images" / str(label) / f"{number}.png"
            keras.utils.save_img(path, pixels)
    arguments = ["--smoke", "--json", str(tmp_path / "adapt.json")]
    for option in ("birds", "emoji"):
        arguments += [f"--{option}", str(tmp_path / "images")]
    for option, width in (("backbone", 0.35), ("teacher", 1.0)):
        file = str(tmp_path / f"{option}.weights.h5")
        network = keras.applications.MobileNetV2(
            (32, 32, 3), alpha=width, include_top=False, weights=None
        )
        network.save_weights(file)
        arguments += [f"--{option}-weights", file]

    def vectors(settings, data, width, weights):
        # A deep network with random weights has no features.
        splits = load_splits(adapt._recipe(settings, data, weights))
        sides = splits.train, splits.validation, splits.test
        return adapt.Sides(
            *((random.normal(size=(len(s), 200)), s.labels) for s in sides)
        )

    monkeypatch.setattr(adapt, "_vectors", vectors)
    run_measurement(adapt, arguments)
    results = read_record(tmp_path / "adapt.json")["results"]
    names = [row["name"] for row in results["distilling"]]
    assert "small searches large, regression" in names
    assert [len(rows) for rows in results.values()] == [8, 11, 12, 2]
