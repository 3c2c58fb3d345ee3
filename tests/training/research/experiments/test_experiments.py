"""Every experiment runs at tiny sizes and leaves a record with a page."""

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("experiments train on TensorFlow", allow_module_level=True)

import keras_gsp as gsp
from tests.training.datasets import layouts
from training.research.experiments import (
    head_starts,
    transport_toy,
    two_looks,
    whitening,
    zero_shot_prediction,
)
from training.research.pages import pages
from training.research.report import Table, read_record, run_measurement
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
    if hasattr(module, "draw"):
        assert f"({name}.png)" in page
        assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    return record.get("results") or record["tables"]


def of_one_layer(monkeypatch, filters, side):
    """MobileNetV2 becomes one convolution of squares of pixels."""

    def small(input_shape, **_):
        convolution = keras.layers.Conv2D(filters, side, strides=side)
        return keras.Sequential([keras.Input(input_shape), convolution])

    monkeypatch.setattr(keras.applications, "MobileNetV2", small)


@pytest.mark.parametrize("module", [transport_toy, zero_shot_prediction])
def test_a_smoke_run_has_a_page(module, tmp_path):
    assert smoke_run(module, tmp_path)


def test_second_looks_are_measured_beside_other_boxes(tmp_path):
    (table,) = smoke_run(two_looks, tmp_path)
    rows = {row[0]: row[1:] for row in table["rows"]}
    for name in ("box of GSP", "box of random"):
        hit, *looks, gain = rows[name]
        assert 0 <= float(hit) <= 100 and "[" in gain
        assert all(0 <= float(score) <= 100 for score in looks)
    assert rows["box of center"][0] == "0.0" and rows["GSP, whole"][-1] == ""


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
    assert [*named] == ["average", "best pooling", *whitening.FORMS]
    for name, row in named.items():
        assert {*row["gains"]} == {"best pooling", "learned whitening"} - {name}
        for gain in row["gains"].values():
            assert gain["low"] <= gain["difference"] <= gain["high"]
    scores = {row["map_at_r"] for row in rows}
    assert len(scores) > 2 and all(0 < score <= 1 for score in scores)


def test_heads_are_scored_beside_learned_whitening(tmp_path, ten_classes):
    found = smoke_run(head_starts, tmp_path, *ten_classes, "--classes", "9")
    ((title, rows),) = found["sets"].items()
    assert title == "images: 9 classes, 36 images"
    raw, whitened, *heads = rows
    assert raw["gains"] and not whitened["gains"]
    assert [row["name"] for row in heads[::5]] == [
        "average from random",
        "GSP + GeM from whitening",
    ]
    for row in heads:
        gain = row["gains"]["learned whitening"]
        assert gain["low"] <= gain["difference"] <= gain["high"]
        assert row["chosen"] == ["0.001"] * 3 and 0 < row["untrained"] <= 1
    scores = {row["untrained"] for row in heads}
    assert len(scores) > 2


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


def test_photographs_are_looked_at_twice(tmp_path, monkeypatch):
    of_one_layer(monkeypatch, 200, 8)
    layouts.folder(tmp_path / "images", list("abcdefghijklmnopqrst"), images=15)
    options = ["--data-dir", str(tmp_path / "images"), "--pixels", "64"]
    (table,) = smoke_run(two_looks, tmp_path, *options)
    (alone,) = smoke_run(two_looks, tmp_path, *options, "--no-heads")
    names, raw = ([row[0] for row in x["rows"]] for x in (table, alone))
    assert raw == names[:4]
    # Two looks are compared with one.
    assert [bool(row[-1]) for row in alone["rows"]] == [False, True] * 2


def test_koo_fu_keeps_the_directions_of_the_other_forms():
    """Nearly without shrinkage."""
    from scipy.linalg import subspace_angles

    labels = np.repeat(np.arange(9), 12)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(9, 24))[labels] + 2 * rng.normal(size=(108, 24))
    layer = gsp.layers.Whitening(8, shrinkage=1e-9)
    layer.adapt(rows, labels)
    _, kernel = whitening.koo_fu(rows, labels, 8, 1e-9)
    for other in (
        np.asarray(layer.kernel),
        whitening.discriminants(rows, labels, 8, 1e-9)[1],
    ):
        assert subspace_angles(kernel, other).max() < 1e-3
