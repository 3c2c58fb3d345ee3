"""Folders, lists and decisions: labels, names, limits and errors."""

import csv
import shutil

import numpy as np
import pytest
from PIL import Image

import keras_gsp as gsp

pytestmark = pytest.mark.usefixtures("cache")


def folder(root, classes, images=2):
    for name in classes:
        (root / name).mkdir(parents=True, exist_ok=True)
        for number in range(images):
            pixels = np.full((6, 8, 3), 10 * number, "uint8")
            Image.fromarray(pixels).save(root / name / f"{number}.jpg")
    return root


def test_classes_are_folders_at_any_depth(tmp_path):
    folder(tmp_path, ["cats", "dogs/large", "dogs/small"])
    found = gsp.data.image_folder(tmp_path)
    assert found.class_names == ("cats", "dogs/large", "dogs/small")
    assert found.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert found.paths[2] == str(tmp_path / "dogs/large/0.jpg")
    few = gsp.data.image_folder(tmp_path, images_per_class=1)
    assert few.labels.tolist() == [0, 1, 2]
    assert all(path.endswith("0.jpg") for path in few.paths)
    archive = shutil.make_archive(tmp_path / "zipped", "zip", tmp_path)
    assert gsp.data.image_folder(archive).class_names == found.class_names


def test_files_that_are_not_read_are_counted_and_named(tmp_path):
    folder(tmp_path, ["a", "b"])
    for name in ("1.raw", "2.svg", ".hidden"):
        (tmp_path / "a" / name).write_text("x")
    message = "2 of 6 files in .* are no JPG, .*: a/1.raw, a/2.svg"
    with pytest.warns(UserWarning, match=message):
        found = gsp.data.image_folder(tmp_path)
    assert len(found) == 4
    folder(tmp_path, ["."])
    with pytest.warns(UserWarning, match="2 of 6 images lie in"):
        assert "." in gsp.data.image_folder(tmp_path).class_names


def test_an_empty_or_absent_folder_is_an_error(tmp_path):
    for path, options, error, message in (
        (tmp_path, {}, FileNotFoundError, "no image at any depth"),
        (tmp_path / "nowhere", {}, FileNotFoundError, "nowhere"),
        (tmp_path, {"images_per_class": 0}, ValueError, "images_per_class=0"),
    ):
        with pytest.raises(error, match=message):
            gsp.data.image_folder(path, **options)


def write_csv(tmp_path, *lines):
    folder(tmp_path, list("ab"))
    file = tmp_path / "list.csv"
    file.write_text("\n".join(lines))
    return file


def test_a_list_names_files_and_labels(tmp_path):
    rows = "b/0.jpg,bee", "a/0.jpg,ape", "b/1.jpg,bee"
    file = write_csv(tmp_path, "path,label", *rows)
    found = gsp.data.csv_list(file)
    assert found.class_names == ("ape", "bee")
    assert found.names.tolist() == ["bee", "ape", "bee"]
    assert found.paths[1] == str(tmp_path / "a/0.jpg")
    assert len(gsp.data.csv_list(file, images_per_class=1)) == 2


def test_missing_files_of_a_list_are_an_error_or_kept(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere.csv"):
        gsp.data.csv_list(tmp_path / "nowhere.csv")
    file = write_csv(tmp_path, "path,label", "a/0.jpg,a", "a/9.jpg,a")
    with pytest.raises(FileNotFoundError, match="1 of 2 missing.*9.jpg"):
        gsp.data.csv_list(file)
    assert len(gsp.data.csv_list(file, on_missing="skip")) == 2


def test_bad_lists_are_refused(tmp_path):
    for lines, message in [
        (["file,label", "a/0.jpg,a"], "columns path and label"),
        (["path,label"], "0 rows"),
        (["path,label", "a/0.jpg,"], "line 2"),
        (["path,label,x", "a/0.jpg,a,1"], "x, y, width, height.*columns x"),
        (["path,label,x,y,width,height", "a/0.jpg,a,1,2,3,"], "a number in"),
        (["path,label,x,y,width,height", "a/0.jpg,a,1,2,3,inf"], "inf"),
        (["path,label,x,y,width,height", "a/0.jpg,a,0,0,.6,.8"], "pixels.*.6"),
    ]:
        with pytest.raises(ValueError, match=message):
            gsp.data.csv_list(write_csv(tmp_path, *lines))


def test_a_list_has_boxes_and_says_which_encoding_it_needs(tmp_path):
    lines = "a/0.jpg,a,1,2,3,4", "b/0.jpg,b,0,0,8,6"
    file = write_csv(tmp_path, "path,label,x,y,width,height", *lines)
    found = gsp.data.csv_list(file)
    assert found.boxes.tolist() == [[1, 2, 3, 4], [0, 0, 8, 6]]
    assert found.subset([1]).boxes.tolist() == [[0, 0, 8, 6]]
    lines = "a/0.jpg,a,1.6,2.4,3,4", "b/0.jpg,b,0,0,8,6"
    rounded = write_csv(tmp_path, "path,label,x,y,width,height", *lines)
    assert gsp.data.csv_list(rounded).boxes.tolist()[0] == [2, 2, 3, 4]
    sizes = write_csv(tmp_path, "path,label,width,height", "a/0.jpg,a,8,6")
    assert gsp.data.csv_list(sizes).boxes is None
    file.write_bytes("path,label\na/0.jpg,Häher\n".encode("cp1252"))
    with pytest.raises(ValueError, match="must be text in UTF-8.*at byte"):
        gsp.data.csv_list(file)


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


def test_names_of_columns_may_have_spaces_and_capitals(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.png").touch()
    rows = "a.png,cat,1,2,3,4\nb.png,dog,0,0,8,6\n"
    file = tmp_path / "list.csv"
    file.write_text(f"path, Label,X, y,Width,height\n{rows}")
    found = gsp.data.csv_list(file)
    assert found.boxes.tolist() == [[1, 2, 3, 4], [0, 0, 8, 6]]
    assert found.class_names == ("cat", "dog")
    file.write_text(f"path,label,left,top,width,height\n{rows}")
    with pytest.warns(UserWarning, match="Boxes are columns x, y, width"):
        assert gsp.data.csv_list(file).boxes is None


def test_a_relative_folder_and_a_list_take_decisions_too(
    photos, tmp_path, monkeypatch
):
    decisions = listed(tmp_path / "d.csv", ("cat/0.jpg", "drop", ""))
    monkeypatch.chdir(tmp_path)
    assert len(gsp.data.image_folder("photos", decisions=decisions)) == 5
    images = photos / "images.csv"
    images.write_text("path,label\ncat/0.jpg,a\ncat/1.jpg,a\ndog/0.jpg,b\n")
    decisions = listed(tmp_path / "d.csv", ("cat/1.jpg", "relabel", "b"))
    found = gsp.data.csv_list(images, decisions=decisions)
    assert found.names.tolist() == ["a", "b", "b"]
    # Boxes of one image are rows of their own, which no decision tells apart.
    images.write_text(
        "path,label,x,y,width,height\n"
        "cat/0.jpg,a,0,0,2,2\ncat/0.jpg,b,2,2,2,2\ncat/1.jpg,a,0,0,2,2\n"
    )
    decisions = listed(tmp_path / "d.csv", ("cat/1.jpg", "drop", ""))
    found = gsp.data.csv_list(images, decisions=decisions)
    assert found.boxes.tolist() == [[0, 0, 2, 2], [2, 2, 2, 2]]
    decisions = listed(tmp_path / "d.csv", ("cat/0.jpg", "drop", ""))
    with pytest.raises(ValueError, match="images of one row.*2 rows of.*0.jpg"):
        gsp.data.csv_list(images, decisions=decisions)
    # A class whose images all go is gone.
    rows = [(f"dog/{i}.jpg", "relabel", "cat") for i in range(3)]
    decisions = listed(tmp_path / "d.csv", *rows)
    found = gsp.data.image_folder(photos, decisions=decisions)
    assert found.class_names == ("cat",) and len(found) == 6


KEPT = ("cat/0.jpg", "keep", "")
ALL = [(f"{c}/{i}.jpg", "drop", "") for c in ("cat", "dog") for i in "012"]


def test_wrong_decisions_are_refused(photos, tmp_path):
    for rows, words in (
        ([("bird/0.jpg", "drop", "")], "1 of 1 paths .* that are not there"),
        ([("cat/0.jpg", "remove", "")], "keep, relabel, drop. .*: remove"),
        ([("cat/0.jpg", "relabel", "cta")], "a class of the images .*: cta"),
        ([KEPT, KEPT], "one decision for an image"),
        (ALL, "an image to keep"),
    ):
        decisions = listed(tmp_path / "d.csv", *rows)
        with pytest.raises(ValueError, match=words):
            gsp.data.image_folder(photos, decisions=decisions)
    with pytest.raises(FileNotFoundError, match="which is no file"):
        gsp.data.image_folder(photos, decisions=tmp_path / "gone.csv")
    (tmp_path / "d.csv").write_text("path,label\n")
    with pytest.raises(ValueError, match="columns path, decision and label"):
        gsp.data.image_folder(photos, decisions=tmp_path / "d.csv")
