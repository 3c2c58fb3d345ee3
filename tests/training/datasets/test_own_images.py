"""Image folders, CSV lists and collages of one's own."""

import numpy as np
import pytest

from tests.training.datasets import layouts
from training.datasets.collage import (
    CIFAR10_SIDES,
    collage_splits,
    compose_collages,
)
from training.datasets.own_images import csv_splits, folder_splits
from training.recipes.data import load_splits
from training.recipes.recipe import named

pytestmark = pytest.mark.usefixtures("cache")


def test_named_sides_of_different_classes_are_kept(tmp_path):
    layouts.folder(tmp_path / "train", ["a", "b"])
    layouts.folder(tmp_path / "test", ["c"])
    layouts.folder(tmp_path / "validation", ["d"])
    splits = folder_splits(tmp_path)
    assert splits.train.class_names == ("a", "b")
    assert splits.test.class_names == ("c",)
    assert splits.validation.class_names == ("d",)


def test_half_of_the_classes_are_drawn_for_training(tmp_path):
    layouts.folder(tmp_path, list("abcdefgh"), images=1)
    assert folder_splits(tmp_path).train.num_classes in (3, 4, 5)


def write_csv(tmp_path, *lines):
    layouts.folder(tmp_path, list("abcd"), images=2)
    file = tmp_path / "list.csv"
    file.write_text("\n".join(lines))
    return file


def test_a_csv_list_with_splits(tmp_path):
    file = write_csv(
        tmp_path,
        "path,label,split",
        "a/0000.jpg,ape,train",
        "a/0001.jpg,ape,train",
        "b/0000.jpg,bee,query",
        "b/0001.jpg,bee,gallery",
        "c/0000.jpg,cat,validation",
    )
    splits = csv_splits(file)
    assert splits.train.class_names == ("ape",)
    assert splits.query.class_names == splits.gallery.class_names == ("bee",)
    assert len(splits.test) == 2
    assert splits.validation.class_names == ("cat",)
    # Without a column of splits the classes are drawn.
    rows = [f"{c}/{i:04d}.jpg,{c}" for c in "abcd" for i in range(2)]
    splits = csv_splits(write_csv(tmp_path, "path,label", *rows))
    assert splits.train.num_classes + splits.test.num_classes == 4


def test_bad_lists_and_flat_folders_are_refused(tmp_path):
    # Sides that do not fit each other: test_image_set.py.
    for rows, message in (
        ("a/0000.jpg,a,train b/0000.jpg,b,exam", "'exam' in line 3"),
        ("a/0000.jpg,a,train", "images to train with and to"),
    ):
        with pytest.raises(ValueError, match=message):
            csv_splits(write_csv(tmp_path, "path,label,split", *rows.split()))
    layouts.picture(tmp_path / "flat" / "0.jpg")
    with pytest.raises(ValueError, match="1 images of one class"):
        folder_splits(tmp_path / "flat")


def flat(first, count, side=4):
    """Images of one value each, `first` and above."""
    values = np.arange(first, first + count, dtype="uint8")
    return np.broadcast_to(values[:, None, None, None], (count, side, side, 3))


def test_a_collage_holds_the_picture_once_among_three_backgrounds():
    pictures, backgrounds = flat(1, 40), flat(100, 7)
    made = compose_collages(pictures, backgrounds, seed=1)
    assert made.shape == (40, 8, 8, 3)
    cells = made[:, ::4, ::4, 0].reshape(40, 4)
    own = cells == np.arange(1, 41)[:, None]
    assert (own.sum(axis=1) == 1).all()
    assert set(np.argmax(own, axis=1)) == {0, 1, 2, 3}
    assert all(len(set(row)) == 4 for row in cells.tolist())
    # Dealt like cards: every background as often as the others, nearly.
    counts = np.bincount(cells[cells >= 100] - 100, minlength=7)
    assert counts.min() >= 10
    again = compose_collages(pictures, backgrounds, seed=1)
    np.testing.assert_array_equal(made, again)
    for others in (flat(0, 2), flat(0, 5, side=8)):
        with pytest.raises(ValueError, match="3 or more images"):
            compose_collages(pictures, others)


@pytest.mark.slow
def test_collages_of_cifar10_learn_one_class_and_test_its_sibling(tmp_path):
    (learned, bird), (tested, frog) = CIFAR10_SIDES
    for number, name in enumerate((*learned, bird, *tested, frog)):
        for image in range(20):
            file = tmp_path / name / f"{image}.jpg"
            layouts.picture(file, seed=100 * number + image)
    splits = collage_splits(tmp_path)
    assert splits.train.class_names == tuple(sorted(learned))
    assert splits.test.class_names == tuple(sorted(tested))
    # Validation has a fifth of the training images.
    assert [len(side) for side in splits.sides().values()] == [64, 80, 16]
    fewer = collage_splits(tmp_path, images_per_class=15)
    assert [len(side) for side in fewer.sides().values()] == [48, 60, 12]


def test_other_folders_are_no_collages(tmp_path):
    layouts.folder(tmp_path / "few", list("abcd"))
    with pytest.raises(ValueError, match="CIFAR-10. Received: a, b, c, d"):
        collage_splits(tmp_path / "few")


def test_a_single_class_of_validation_is_warned_of(tmp_path):
    for side, names in (("train", "ab"), ("validation", "c"), ("test", "de")):
        layouts.folder(tmp_path / side, list(names))
    recipe = named("folder").with_(data_dir=str(tmp_path), classes_per_batch=2)
    with pytest.warns(UserWarning, match="Validation has one class"):
        load_splits(recipe)
