"""Folders and lists of images: labels, names, limits and errors."""

import numpy as np
import pytest
from PIL import Image

import keras_gsp as gsp


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("KERAS_GSP_CACHE", str(folder))


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


def test_a_zip_file_is_a_folder(tmp_path):
    import shutil

    folder(tmp_path / "birds", ["a", "b"])
    archive = shutil.make_archive(tmp_path / "birds", "zip", tmp_path / "birds")
    assert gsp.data.image_folder(archive).class_names == ("a", "b")


def test_files_that_are_not_read_are_counted_and_named(tmp_path):
    folder(tmp_path, ["a", "b"])
    for name in ("1.heic", "2.svg", ".hidden"):
        (tmp_path / "a" / name).write_text("x")
    message = "2 of 6 files in .* are no JPG, .*: a/1.heic, a/2.svg"
    with pytest.warns(UserWarning, match=message):
        found = gsp.data.image_folder(tmp_path)
    assert len(found) == 4


def test_an_empty_or_absent_folder_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="no image at any depth"):
        gsp.data.image_folder(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        gsp.data.image_folder(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="images_per_class=0"):
        gsp.data.image_folder(tmp_path, images_per_class=0)


def write_csv(tmp_path, *lines):
    folder(tmp_path, list("ab"))
    file = tmp_path / "list.csv"
    file.write_text("\n".join(lines))
    return file


def test_a_list_names_files_and_labels(tmp_path):
    file = write_csv(
        tmp_path, "path,label", "b/0.jpg,bee", "a/0.jpg,ape", "b/1.jpg,bee"
    )
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


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["file,label", "a/0.jpg,a"], "columns path and label"),
        (["path,label"], "0 rows"),
        (["path,label", "a/0.jpg,"], "line 2"),
    ],
)
def test_bad_lists_are_refused(tmp_path, lines, message):
    with pytest.raises(ValueError, match=message):
        gsp.data.csv_list(write_csv(tmp_path, *lines))
