"""Every experiment runs at tiny sizes and leaves a record with a page."""

import re
from pathlib import Path

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("experiments train on TensorFlow", allow_module_level=True)

from keras_gsp.data import image_folder
from tests.training.datasets import layouts
from training.datasets.collage import collage_splits
from training.recipes.backbone import build_backbone
from training.research.experiments import (
    cifar_classifier,
    dominant_prototypes,
    head_starts,
    planted,
    transport_toy,
    two_looks,
    upgrade_cost,
    whitening,
    zero_shot_prediction,
)
from training.research.pages import pages
from training.research.report import Table, read_record, run_measurement
from training.research.studies import base_of
from training.runs.raw_baseline import POOLINGS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("cache")]


def smoke_run(module, folder, *options):
    """The record of a smoke run, which its page shows."""
    name = module.__name__.rpartition(".")[2]
    path = folder / "docs" / f"{name}.json"
    run_measurement(module, ["--smoke", "--json", str(path), *options])
    record, page = read_record(path), pages(path.parent)[f"{name}.md"]
    for table in record["tables"]:
        assert Table(**table).markdown() in page
    assert str(folder) not in page
    # Photographs of others are not drawn.
    if hasattr(module, "draw") and "--variants" not in options:
        assert f"({name}.png)" in page
        assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    return record.get("results") or record["tables"]


def of_one_layer(monkeypatch, filters, side):
    """MobileNetV2 becomes one convolution of squares of pixels."""

    def small(input_shape, **_):
        convolution = keras.layers.Conv2D(filters, side, strides=side)
        return keras.Sequential([keras.Input(input_shape), convolution])

    monkeypatch.setattr(keras.applications, "MobileNetV2", small)


@pytest.mark.parametrize(
    "module", [transport_toy, zero_shot_prediction, dominant_prototypes]
)
def test_a_smoke_run_has_a_page(module, tmp_path):
    assert smoke_run(module, tmp_path)


def test_second_looks_are_measured_beside_other_boxes(tmp_path):
    found = smoke_run(two_looks, tmp_path)
    rows = {row["name"]: row for row in found["rows"]}
    for name in ("box of GSP", "box of random"):
        assert 0 <= rows[name]["hit"] <= 100
        assert rows[name]["over"] == "GSP, whole" and "sum" in rows[name]
    assert rows["box of center"]["hit"] == 0


def test_second_looks_find_pictures_among_others(tmp_path):
    layouts.folder(tmp_path / "images", "abcdefghijkl", images=10)
    settings = two_looks.Settings(collages=tmp_path / "images", pixels=32)
    task = two_looks.collages(settings, 0)
    alone = collage_splits(
        tmp_path / "images", canvas_size=32, distractors=False
    )
    for side, own in (("train", alone.train), ("test", alone.test)):
        pixels, boxes = task.images[side], task.true_boxes[side]
        assert len(pixels) == len(own.images) and 0 < boxes[:, :2].mean() < 0.5
        for canvas, box, one in zip(pixels, boxes, own.images, strict=True):
            top, left, bottom, right = (box * 32).astype(int)
            np.testing.assert_array_equal(canvas[top:bottom, left:right], one)
        assert task.labels[side].tolist() == own.labels.tolist()


def test_photographs_have_other_boxes_and_further_looks(tmp_path, monkeypatch):
    of_one_layer(monkeypatch, 200, 8)
    layouts.folder(tmp_path / "images", list("abcdefghijklmnopqrst"), images=15)
    options = ["--data-dir", str(tmp_path / "images"), "--variants"]
    options += ["--pixels", "64", "--seen", "32", "--keep", str(tmp_path / "k")]
    found = smoke_run(two_looks, tmp_path, *options)
    rows = {row["name"]: row for row in found["rows"]}
    for name in ("three looks of GSP", "box of GSP, trained on crops too"):
        assert set(rows[name]["chosen"]) <= {"first", "second", "sum"}
    alone = rows["two looks of GSP, queries alone"]
    assert alone["over"] == "GSP, whole" and alone["map_at_r"] > 0
    whole = rows["raw best pooling, whole"]["map_at_r"]
    assert rows["raw best pooling, box of GSP"]["first"] == whole
    assert rows["box of GSP, out of what was seen"]["over"] == "GSP, whole"
    alone = smoke_run(two_looks, tmp_path, *options[:-2], "--no-heads")
    names = [row["name"] for row in found["rows"]]
    assert [row["name"] for row in alone["rows"]] == names[:6]
    assert alone["rows"][5]["over"] == "raw whitened, whole"
    monkeypatch.setattr(two_looks, "photographs", None)
    assert smoke_run(two_looks, tmp_path, *options) == found  # kept


@pytest.fixture
def ten_classes(tmp_path, monkeypatch):
    """Options for 40 images, and a network of one layer."""
    of_one_layer(monkeypatch, 8, 4)
    layouts.folder(tmp_path / "images", list("abcdefghij"), images=4)
    return "--data-dirs", str(tmp_path / "images")


def test_closed_forms_are_scored_beside_raw_features(tmp_path, ten_classes):
    found = smoke_run(whitening, tmp_path, *ten_classes)
    ((title, rows),) = found["sets"].items()
    assert title == "images: 10 classes, 40 images"
    named = {row["name"]: row for row in rows}
    assert named["best pooling"]["chosen"][0] in POOLINGS
    assert "gain" not in named["best pooling"]
    for name in ("average", "PCA", "whitened, 0.9", "whitened, chosen"):
        low, high = named[name]["gain"][1:]
        assert low <= named[name]["gain"][0] <= high
    scores = {row["map_at_r"] for row in rows}
    assert len(scores) > 2 and all(0 < score <= 1 for score in scores)


def test_what_is_planted_is_found(tmp_path, monkeypatch):
    layouts.folder(tmp_path / "images", list("abcdefghijkl"), images=20)
    rng = np.random.default_rng(0)
    whole = np.repeat(np.eye(12), 20, axis=0) + 0.02 * rng.random((240, 12))

    def features(_, paths):
        """Classes apart; encoded copies near their originals."""
        rows = [int(re.sub(r"\D", "", Path(path).name)) for path in paths]
        found = whole[rows] + 1e-4 * rng.random((len(rows), 12))
        found[len(rows) // 2 :] = rng.random((len(rows) // 2, 12))
        return found[:, None, None]

    monkeypatch.setattr(whitening, "feature_maps", features)
    images = image_folder(tmp_path / "images")
    settings = planted.Settings(size=11, share=0.02)
    found = planted.found_of(settings, images, whole.astype("float32"), 0)
    perfect = {"precision": 100.0, "recall": 100.0}
    for kind in ("any", "similar", "divided"):
        assert found[kind] == perfect, kind
    assert (
        found["encoded"]["recall"] == 100 and found["mirrored"]["recall"] == 0
    )
    half = {"precision": 50.0, "recall": 25.0}
    assert planted.scored([1, 2], [2, 3, 4, 5]) == half


def test_what_is_planted_has_a_page(tmp_path, ten_classes):
    (found,) = smoke_run(planted, tmp_path, *ten_classes).values()
    assert [*found] == [*planted.KINDS]


def test_heads_are_scored_beside_learned_whitening(tmp_path, ten_classes):
    found = smoke_run(head_starts, tmp_path, *ten_classes, "--classes", "9")
    ((title, rows),) = found["sets"].items()
    assert title == "images: 9 classes, 36 images"
    raw, whitened, *heads = rows
    assert "gain" in raw and "gain" not in whitened
    assert [row["name"] for row in heads[::5]] == [
        "average from random",
        "GSP + GeM from whitening",
    ]
    for row in heads:
        low, high = row["gain"][1:]
        assert low <= row["gain"][0] <= high
        assert row["chosen"] == ["0.001"] * 2 and 0 < row["untrained"] <= 1
    scores = {row["untrained"] for row in heads}
    assert len(scores) > 2


def test_changes_of_an_encoder_are_certified(tmp_path, ten_classes):
    layouts.folder(tmp_path / "images", list("abcdefghijklmnopqr"), images=4)
    (table,) = smoke_run(upgrade_cost, tmp_path, *ten_classes)
    rows = {
        row[0]: dict(zip(table["headings"], row, strict=False))
        for row in table["rows"]
    }
    assert [*rows][2:] == ["4 to 2 numbers", "width 1.0 to 0.35"]
    assert len({row["old"] for row in rows.values()}) == 1
    for row in rows.values():
        cost = float(row["mapped"]) - float(row["old"])
        assert abs(float(row["cost"].split()[0]) - cost) < 0.2
        assert row["map"] in ("procrustes", "ridge")


def test_photographs_are_split_in_folds_by_class(tmp_path):
    layouts.folder(tmp_path, "abcdefghijkl", images=2)
    settings = two_looks.Settings(data_dir=tmp_path, folds=2, pixels=32)
    tested = set()
    for fold in (0, 1):
        task = two_looks.photographs(settings, fold)
        sides = [{*labels} for labels in task.labels.values()]
        assert [len(one) for one in sides] == [4, 2, 6]
        assert not sides[0] & sides[1] and not sides[2] & tested
        tested |= sides[2]
        assert task.images["test"].shape == (12, 32, 32, 3)


def test_the_classifier_of_pictures_pretrains_the_network(tmp_path):
    for side, count in (("train", 20), ("test", 5)):
        layouts.folder(tmp_path / "images" / side, list("abcd"), images=count)
    weights = str(tmp_path / "x.weights.h5")
    options = "--weights", weights, "--data-dir", str(tmp_path / "images")
    assert smoke_run(cifar_classifier, tmp_path, *options)["held_out"] == 20
    plain = base_of("cifar-collages")
    recipe = plain.with_(backbone_weights=weights)
    one, same, random = (
        build_backbone(own, (64, 64, 3)) for own in (recipe, recipe, plain)
    )
    assert one.output_shape == (None, 16, 16, 64)
    images = np.full((1, 64, 64, 3), 90, "uint8")
    found = one.predict(images, verbose=0)
    np.testing.assert_array_equal(found, same.predict(images, verbose=0))
    assert np.abs(found - random.predict(images, verbose=0)).max() > 1e-3
