"""Every data set is read from its own layout into the published splits."""

import shutil
from pathlib import Path

import pytest

from tests.training.datasets import layouts
from training.datasets.published import published_splits as read
from training.recipes.data import READERS, readable_splits

pytestmark = pytest.mark.usefixtures("cache")
WRITERS = {
    "cub": layouts.cub,
    "cars": layouts.cars,
    "sop": layouts.sop,
    "inshop": layouts.in_shop,
}
# Training classes of the small layouts, where all images come together.
OWN = {"cub": {"num_train_classes": 2}, "cars": {"num_train_classes": 1}}


@pytest.mark.parametrize("place", ["root", "above", "archive", "beside"])
def test_cub_is_found_wherever_it_lies(tmp_path, place):
    root = layouts.cub(tmp_path / "data")
    data_dir = {"root": root, "above": root.parent}.get(place)
    if data_dir is None:
        (tmp_path / "packed").mkdir()
        archive = tmp_path / "packed" / "CUB_200_2011.tgz"
        layouts.tarred(root, archive)
        shutil.rmtree(root)
        data_dir = archive if place == "archive" else archive.parent
    splits = read("cub", data_dir, expected={"train": 6}, **OWN["cub"])
    assert splits.train.class_names == ("001.Bird_1", "002.Bird_2")
    assert splits.test.class_names == ("003.Bird_3", "004.Bird_4")
    assert splits.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert all(Path(path).is_file() for path in splits.test.paths)


def test_each_layout_is_split_as_published(tmp_path):
    for name, classes, train, test in (
        ("cars", ("Car 0",), 3, 9),
        ("sop", ("1", "2", "3"), 6, 6),
    ):
        root, counts = WRITERS[name](tmp_path), {"train": train, "test": test}
        splits = read(name, root, expected=counts, **OWN.get(name, {}))
        assert splits.train.class_names == classes


@pytest.mark.parametrize("images", ["img", "img.zip", "Img/img"])
def test_in_shop_has_queries_and_a_gallery(tmp_path, images):
    root = layouts.in_shop(tmp_path)
    if images == "img.zip":
        layouts.zipped(root / "img", root / "img.zip", "img")
        shutil.rmtree(root / "img")
    elif images == "Img/img":
        (root / "Img").mkdir()
        (root / "img").rename(root / "Img" / "img")
    counts = {"train": 9, "query": 4, "gallery": 2, "test": 6}
    splits = read("inshop", root, expected=counts)
    assert splits.query.class_names == splits.gallery.class_names
    assert splits.query.labels.tolist() == [0, 0, 1, 1]
    assert splits.gallery.labels.tolist() == [0, 1]


def test_a_missing_data_set_says_where_it_was_looked_for(tmp_path):
    for reader in READERS.values():
        with pytest.raises(FileNotFoundError, match="nowhere"):
            reader(tmp_path / "nowhere")


def test_other_counts_than_published_are_refused(tmp_path):
    for name, write in WRITERS.items():
        (tmp_path / name).mkdir()
        write(tmp_path / name)
        with pytest.raises(ValueError, match="instead of"):
            read(name, tmp_path / name, **OWN.get(name, {}))


def test_damaged_lists_and_files_are_refused(tmp_path):
    root = layouts.in_shop(tmp_path)
    file = root / "Eval/list_eval_partition.txt"
    file.write_text(file.read_text().replace("gallery", "shelf", 1))
    with pytest.raises(ValueError, match="line 14: .*shelf"):
        read("inshop", root)
    root = layouts.cub(tmp_path)
    image = next((root / "images").rglob("*.jpg"))
    aside = image.rename(tmp_path / "aside")
    with pytest.raises(FileNotFoundError, match="1 of 12 missing"):
        read("cub", root)
    aside.rename(image)
    file = root / "image_class_labels.txt"
    file.write_text("\n".join(file.read_text().splitlines()[:-1]))
    with pytest.raises(ValueError, match="12 and 11"):
        read("cub", root)


def test_corrupt_images_end_reading_or_are_skipped_and_counted(
    tmp_path, monkeypatch
):
    root = layouts.folder(tmp_path / "birds", ["a", "b", "c", "d"])
    for name in "abcd":
        (root / name / "0000.jpg").write_bytes(b"\xff\xd8\xff nothing")
    splits = READERS["folder"](root)
    # All sides in one error.
    words = "4 unusable of 12:(.|\\n)*with --corrupt-images skip"
    with pytest.raises(ValueError, match=words):
        readable_splits(splits)
    with pytest.warns(UserWarning, match="4 unusable images of birds"):
        splits = readable_splits(splits, "skip")
    assert len(splits.train) + len(splits.test) == 8
    # Files that passed are not decoded again.
    readable_splits(splits)
    monkeypatch.setattr("training.recipes.data.unreadable", None)
    assert readable_splits(splits) is splits
