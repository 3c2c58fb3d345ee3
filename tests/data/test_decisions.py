"""A list of decisions drops and relabels images as they are read."""

import csv

import pytest

import keras_gsp as gsp
from tests.data.test_image_folder import folder


def listed(path, *rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([("path", "decision", "label"), *rows])
    return path


@pytest.fixture
def photos(tmp_path):
    return folder(tmp_path / "photos", ["cat", "dog"], images=3)


def test_images_are_dropped_and_relabeled(photos, tmp_path):
    decisions = listed(
        tmp_path / "decisions.csv",
        ("cat/0.jpg", "drop", ""),
        ("dog/1.jpg", "relabel", "cat"),
        ("dog/2.jpg", "keep", ""),
    )
    found = gsp.data.image_folder(photos, decisions=decisions)
    names = [path.removeprefix(f"{photos}/") for path in found.paths]
    assert dict(zip(names, found.names.tolist(), strict=True)) == {
        "cat/1.jpg": "cat",
        "cat/2.jpg": "cat",
        "dog/0.jpg": "dog",
        "dog/1.jpg": "cat",
        "dog/2.jpg": "dog",
    }
    few = gsp.data.image_folder(photos, images_per_class=1, decisions=decisions)
    assert [path[-9:] for path in few.paths] == ["cat/1.jpg", "dog/0.jpg"]


def test_the_folder_may_be_relative(photos, tmp_path, monkeypatch):
    decisions = listed(tmp_path / "d.csv", ("cat/0.jpg", "drop", ""))
    monkeypatch.chdir(tmp_path)
    assert len(gsp.data.image_folder("photos", decisions=decisions)) == 5


def test_a_list_takes_decisions_too(photos, tmp_path):
    images = photos / "images.csv"
    images.write_text("path,label\ncat/0.jpg,a\ncat/1.jpg,a\ndog/0.jpg,b\n")
    decisions = listed(tmp_path / "d.csv", ("cat/1.jpg", "relabel", "b"))
    found = gsp.data.csv_list(images, decisions=decisions)
    assert found.names.tolist() == ["a", "b", "b"]


def test_a_class_whose_images_all_go_is_gone(photos, tmp_path):
    rows = [(f"dog/{i}.jpg", "relabel", "cat") for i in range(3)]
    decisions = listed(tmp_path / "d.csv", *rows)
    found = gsp.data.image_folder(photos, decisions=decisions)
    assert found.class_names == ("cat",) and len(found) == 6


KEPT = ("cat/0.jpg", "keep", "")
ALL = [(f"{c}/{i}.jpg", "drop", "") for c in ("cat", "dog") for i in "012"]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([("bird/0.jpg", "drop", "")], "1 of 1 paths .* that are not there"),
        ([("cat/0.jpg", "remove", "")], "keep, relabel, drop. .*: remove"),
        ([("cat/0.jpg", "relabel", "cta")], "a class of the images .*: cta"),
        ([KEPT, KEPT], "one decision for an image"),
        (ALL, "an image to keep"),
    ],
)
def test_wrong_decisions_are_refused(photos, tmp_path, rows, words):
    decisions = listed(tmp_path / "d.csv", *rows)
    with pytest.raises(ValueError, match=words):
        gsp.data.image_folder(photos, decisions=decisions)


def test_wrong_files_are_refused(photos, tmp_path):
    with pytest.raises(FileNotFoundError, match="which is no file"):
        gsp.data.image_folder(photos, decisions=tmp_path / "gone.csv")
    (tmp_path / "d.csv").write_text("path,label\n")
    with pytest.raises(ValueError, match="columns path, decision and label"):
        gsp.data.image_folder(photos, decisions=tmp_path / "d.csv")
