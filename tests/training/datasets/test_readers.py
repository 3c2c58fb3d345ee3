"""Every data set is read from its own layout into the published splits."""

import shutil
from pathlib import Path

import pytest

from tests.training.datasets import layouts
from training.datasets.published import published_splits as read
from training.datasets.reading import READERS, read_splits

pytestmark = pytest.mark.usefixtures("cache")


def names_of(splits):
    return splits.train.class_names, splits.test.class_names


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
    counts = {"train": 6, "test": 6}
    splits = read("cub", data_dir, num_train_classes=2, expected=counts)
    assert names_of(splits) == (
        ("001.Bird_1", "002.Bird_2"),
        ("003.Bird_3", "004.Bird_4"),
    )
    assert splits.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert all(Path(path).is_file() for path in splits.test.paths)


@pytest.mark.parametrize(
    "name, write, classes, train, test",
    [
        ("cars", layouts.cars, ("Car 0",), 3, 9),
        ("sop", layouts.sop, ("1", "2", "3"), 6, 6),
        ("mnist", layouts.mnist, tuple("01234"), 20, 20),
        (
            *("omniglot", layouts.omniglot),
            ("Alphabet0/character01", "Alphabet0/character02"),
            *(4, 4),
        ),
    ],
)
def test_each_layout_is_split_as_published(
    tmp_path, name, write, classes, train, test
):
    own = {"num_train_classes": 1} if name == "cars" else {}
    counts = {"train": train, "test": test}
    splits = read(name, write(tmp_path), expected=counts, **own)
    assert splits.train.class_names == classes
    assert not {*splits.test.class_names} & {*classes}
    if name == "mnist":
        assert splits.test.images.shape == (20, 28, 28, 3)
        pixels = splits.test.images[:, 3, 3, 2]
        assert (pixels == splits.test.labels + 5).all()


@pytest.mark.parametrize("images", ["img", "img.zip", "Img/img"])
def test_in_shop_has_queries_and_a_gallery(tmp_path, images):
    root = layouts.in_shop(tmp_path)
    if images == "img.zip":
        layouts.zipped(root / "img", root / "img.zip", "img")
        shutil.rmtree(root / "img")
    elif images == "Img/img":
        (root / "Img").mkdir()
        (root / "img").rename(root / "Img" / "img")
    splits = read(
        "inshop",
        root,
        expected={"train": 9, "query": 4, "gallery": 2, "test": 6},
    )
    assert splits.query.class_names == splits.gallery.class_names
    assert splits.query.labels.tolist() == [0, 0, 1, 1]
    assert splits.gallery.labels.tolist() == [0, 1]


@pytest.mark.parametrize("kind", ["cifar10", "cifar100"])
def test_cifar_pixels_keep_their_labels(tmp_path, kind):
    root = getattr(layouts, kind)(tmp_path)
    archive = layouts.tarred(root, tmp_path / "c.tar.gz")
    splits = read(kind, archive, expected=None)
    assert splits.train.num_classes == splits.test.num_classes
    assert (splits.train.images[:, 5, 5, 1] == splits.train.labels).all()
    offset = splits.train.num_classes
    assert (splits.test.images[:, 0, 0, 0] == splits.test.labels + offset).all()


def test_folders_of_images_and_a_small_archive_are_read_too(tmp_path):
    root = layouts.omniglot(tmp_path / "o", ["images_background_small1"])
    archive = layouts.zipped(root, tmp_path / "small.zip")
    splits = read("omniglot", archive, expected=None)
    assert len(splits.train) == len(splits.test) == 2
    shutil.rmtree(root)
    archive.unlink()
    for side in ("train", "test"):
        layouts.folder(tmp_path / side, ["a", "b", "c", "d"], images=2)
    splits = read("cifar10", tmp_path, expected={"train": 8, "test": 8})
    assert names_of(splits) == (("a", "b"), ("c", "d"))


@pytest.mark.parametrize("dataset", sorted(READERS))
def test_a_missing_data_set_says_where_it_was_looked_for(tmp_path, dataset):
    with pytest.raises(FileNotFoundError) as error:
        read_splits(dataset, tmp_path / "nowhere")
    assert "nowhere" in str(error.value)


def test_folders_are_not_read_from_tfds():
    with pytest.raises(ValueError, match="dataset='folder'"):
        read_splits("folder", None, source="tfds")


@pytest.mark.parametrize(
    "name, write",
    [
        ("cub", layouts.cub),
        ("cars", layouts.cars),
        ("sop", layouts.sop),
        ("inshop", layouts.in_shop),
        ("cifar10", layouts.cifar10),
        ("mnist", layouts.mnist),
    ],
)
def test_other_counts_than_published_are_refused(tmp_path, name, write):
    write(tmp_path)
    settings = {}
    if name in ("cub", "cars"):
        settings["num_train_classes"] = 2
    with pytest.raises(ValueError, match="instead of"):
        read(name, tmp_path, **settings)


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
        read("cub", root, num_train_classes=2, expected=None)
    aside.rename(image)
    file = root / "image_class_labels.txt"
    file.write_text("\n".join(file.read_text().splitlines()[:-1]))
    with pytest.raises(ValueError, match="12 and 11"):
        read("cub", root, num_train_classes=2, expected=None)
    root = layouts.cifar10(tmp_path)
    file = root / "test_batch.bin"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match="records of 3073 bytes"):
        read("cifar10", root, expected=None)
    mnist_root = layouts.mnist(tmp_path / "mnist")
    shutil.copy(
        mnist_root / "t10k-labels-idx1-ubyte.gz",
        mnist_root / "t10k-images-idx3-ubyte.gz",
    )
    with pytest.raises(ValueError, match="rank 3"):
        read("mnist", mnist_root)


def test_corrupt_images_end_reading_or_are_skipped_and_counted(tmp_path):
    root = layouts.folder(tmp_path / "birds", ["a", "b", "c", "d"])
    for name in "abcd":
        (root / name / "0000.jpg").write_bytes(b"\xff\xd8\xff nothing")
    # All sides in one error.
    words = "4 unusable of 12:(.|\\n)*with --corrupt-images skip"
    with pytest.raises(ValueError, match=words):
        read_splits("folder", root)
    with pytest.warns(UserWarning, match="4 unusable images of birds"):
        splits = read_splits("folder", root, on_corrupt="skip")
    assert len(splits.train) + len(splits.test) == 8


def test_files_that_passed_are_not_decoded_again(tmp_path, monkeypatch):
    root = layouts.folder(tmp_path / "birds", ["a", "b"])
    first = read_splits("folder", root)
    monkeypatch.setattr("keras_gsp.data.readable_images", None)
    assert read_splits("folder", root).train.paths == first.train.paths
