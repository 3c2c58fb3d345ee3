"""Folders, lists and decisions: labels, names, limits and errors."""

import csv
import shutil
import unicodedata

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


def test_linked_folders_are_read_once_and_their_loops_end(tmp_path):
    root, store = folder(tmp_path / "photos", ["cat"]), tmp_path / "store"
    folder(store, ["dog", "dog/small"])
    links = {
        "dog": store / "dog",  # Elsewhere: a class.
        "alias": root / "cat",  # A second name of a class.
        "cat/loop": root,
        "cat/up": tmp_path,
        "gone": tmp_path / "nowhere",
        "cat/gone.jpg": tmp_path / "nowhere.jpg",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    with pytest.warns(UserWarning) as caught:
        photos = gsp.data.image_folder(root)
    assert photos.class_names == ("cat", "dog", "dog/small")
    assert len(photos) == 6
    (message,) = (str(warning.message) for warning in caught)
    assert message.startswith("5 links lead nowhere, or to a folder that is")
    # The root itself may be a link, and a link may hold a class.
    (tmp_path / "link").symlink_to(root)
    with pytest.warns(UserWarning, match="5 links"):
        linked = gsp.data.image_folder(tmp_path / "link")
    assert linked.class_names == photos.class_names


FORMS = [unicodedata.normalize(form, "caf\u00e9") for form in ("NFC", "NFD")]


def test_names_are_composed_and_files_are_read_by_their_own(tmp_path):
    for number, name in enumerate(FORMS):
        (tmp_path / name).mkdir()
        image = Image.new("RGB", (8, 6))
        image.save(tmp_path / name / f"{FORMS[1]}{number}.jpg")
    photos = gsp.data.image_folder(tmp_path)
    assert photos.class_names == (FORMS[0],)
    assert len(photos.readable()) == 2
    # Lists and decisions may have either form.
    lines = [f"{FORMS[1]}/{FORMS[0]}1.jpg,{name}" for name in FORMS[:1]]
    lines += [f"{FORMS[0]}/{FORMS[1]}0.jpg,{FORMS[1]}"]
    file = tmp_path / "list.csv"
    file.write_text("\n".join(["path,label", *lines]))
    listed_photos = gsp.data.ImageSet.from_csv(file)
    assert listed_photos.class_names == (FORMS[0],)
    assert {*listed_photos.paths} == {*photos.paths}
    rows = [(f"{FORMS[0]}/{FORMS[0]}0.jpg", "drop", "")]
    decisions = listed(tmp_path / "d.csv", *rows)
    with pytest.warns(UserWarning, match="are no JPG"):
        assert len(gsp.data.image_folder(tmp_path, decisions=decisions)) == 1


def write_csv(tmp_path, *lines):
    folder(tmp_path, list("ab"))
    file = tmp_path / "list.csv"
    file.write_text("\n".join(lines))
    return file


def test_a_list_names_files_and_labels(tmp_path):
    rows = "b/0.jpg,bee", "a/0.jpg,ape", "b/1.jpg,bee"
    file = write_csv(tmp_path, "path,label", *rows)
    found = gsp.data.ImageSet.from_csv(file)
    assert found.class_names == ("ape", "bee")
    assert found.names.tolist() == ["bee", "ape", "bee"]
    assert found.paths[1] == str(tmp_path / "a/0.jpg")


def test_rows_that_repeat_or_contradict_others_are_warned_of(tmp_path):
    rows = "a/0.jpg,a", "b/0.jpg,b"
    file = write_csv(tmp_path, "path,label", *rows, "./a/0.jpg,a", *rows)
    with pytest.warns(UserWarning, match="3 rows repeat others and are left"):
        assert len(gsp.data.ImageSet.from_csv(file)) == 2
    file = write_csv(tmp_path, "path,label", *rows, "a/0.jpg,b")
    with pytest.warns(UserWarning, match="1 images have several labels"):
        assert len(gsp.data.ImageSet.from_csv(file)) == 3


def test_files_that_cannot_be_read_are_left_out_and_named(tmp_path):
    folder(tmp_path, ["a"], images=4)
    whole = (tmp_path / "a" / "0.jpg").read_bytes()
    (tmp_path / "a" / "1.jpg").write_bytes(whole[:-60])
    (tmp_path / "a" / "2.jpg").write_bytes(b"")
    (tmp_path / "a" / "3.jpg").write_text("not an image")
    photos = gsp.data.image_folder(tmp_path)
    with pytest.warns(UserWarning, match="3 unusable of 4") as caught:
        assert photos.readable().paths == photos.paths[:1]
    assert all(f"{i}.jpg: cannot be" in str(caught[0].message) for i in "123")
    with pytest.raises(ValueError, match="(?s)2 unusable of 2:.*2.jpg.*0 byt"):
        photos.subset([2, 3]).readable()
    pixels = np.zeros((1, 4, 4, 3), "uint8")
    assert len(gsp.data.ImageSet([0], "a", pixels).readable()) == 1


def test_missing_files_of_a_list_may_be_kept(tmp_path):
    file = write_csv(tmp_path, "path,label", "a/0.jpg,a", "a/9.jpg,a")
    assert len(gsp.data.ImageSet.from_csv(file, on_missing="skip")) == 2


def test_a_list_has_boxes_and_says_which_encoding_it_needs(tmp_path):
    lines = "a/0.jpg,a,1,2,3,4", "b/0.jpg,b,0,0,8,6"
    file = write_csv(tmp_path, "path,label,x,y,width,height", *lines)
    found = gsp.data.ImageSet.from_csv(file)
    assert found.boxes.tolist() == [[1, 2, 3, 4], [0, 0, 8, 6]]
    assert found.subset([1]).boxes.tolist() == [[0, 0, 8, 6]]
    lines = "a/0.jpg,a,1.6,2.4,3,4", "b/0.jpg,b,0,0,8,6"
    rounded = write_csv(tmp_path, "path,label,x,y,width,height", *lines)
    assert gsp.data.ImageSet.from_csv(rounded).boxes.tolist()[0] == [2, 2, 3, 4]
    sizes = write_csv(tmp_path, "path,label,width,height", "a/0.jpg,a,8,6")
    assert gsp.data.ImageSet.from_csv(sizes).boxes is None
    file.write_bytes("path,label\na/0.jpg,Häher\n".encode("cp1252"))
    with pytest.raises(ValueError, match="must be text in UTF-8.*at byte"):
        gsp.data.ImageSet.from_csv(file)


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


def test_names_of_columns_may_have_spaces_and_capitals(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.png").touch()
    rows = "a.png,cat,1,2,3,4\nb.png,dog,0,0,8,6\n"
    file = tmp_path / "list.csv"
    file.write_text(f"path, Label,X, y,Width,height\n{rows}")
    found = gsp.data.ImageSet.from_csv(file)
    assert found.boxes.tolist() == [[1, 2, 3, 4], [0, 0, 8, 6]]
    assert found.class_names == ("cat", "dog")
    file.write_text(f"path,label,left,top,width,height\n{rows}")
    with pytest.warns(UserWarning, match="Boxes are columns x, y, width"):
        assert gsp.data.ImageSet.from_csv(file).boxes is None


def test_a_relative_folder_and_a_list_take_decisions_too(
    photos, tmp_path, monkeypatch
):
    decisions = listed(tmp_path / "d.csv", ("cat/0.jpg", "drop", ""))
    monkeypatch.chdir(tmp_path)
    assert len(gsp.data.image_folder("photos", decisions=decisions)) == 5
    images = photos / "images.csv"
    images.write_text("path,label\ncat/0.jpg,a\ncat/1.jpg,a\ndog/0.jpg,b\n")
    decisions = listed(tmp_path / "d.csv", ("cat/1.jpg", "relabel", "b"))
    found = gsp.data.ImageSet.from_csv(images, decisions=decisions)
    assert found.names.tolist() == ["a", "b", "b"]
    # Boxes of one image are rows of their own, which no decision tells apart.
    images.write_text(
        "path,label,x,y,width,height\n"
        "cat/0.jpg,a,0,0,2,2\ncat/0.jpg,b,2,2,2,2\ncat/1.jpg,a,0,0,2,2\n"
    )
    decisions = listed(tmp_path / "d.csv", ("cat/1.jpg", "drop", ""))
    found = gsp.data.ImageSet.from_csv(images, decisions=decisions)
    assert found.boxes.tolist() == [[0, 0, 2, 2], [2, 2, 2, 2]]
    decisions = listed(tmp_path / "d.csv", ("cat/0.jpg", "drop", ""))
    with pytest.raises(ValueError, match="images of one row.*2 rows of.*0.jpg"):
        gsp.data.ImageSet.from_csv(images, decisions=decisions)
    # A class whose images all go is gone.
    rows = [(f"dog/{i}.jpg", "relabel", "cat") for i in range(3)]
    decisions = listed(tmp_path / "d.csv", *rows)
    found = gsp.data.image_folder(photos, decisions=decisions)
    assert found.class_names == ("cat",) and len(found) == 6
