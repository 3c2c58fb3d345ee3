import numpy as np
import pytest

from training.datasets.image_set import ImageSet, RetrievalSplits

LABELS = [0, 0, 1, 2, 2, 1]


def images(names="abc", labels=LABELS):
    paths = tuple(f"{label}/{i}.jpg" for i, label in enumerate(labels))
    return ImageSet(labels=labels, class_names=names, paths=paths)


def pixels(count=6):
    return np.arange(count, dtype="uint8")[:, None, None, None] * np.ones(
        (1, 2, 2, 3), "uint8"
    )


def test_length_classes_and_sizes():
    data = images()
    assert len(data) == 6
    assert data.num_classes == 3
    assert data.class_sizes.tolist() == [2, 2, 2]
    assert data.labels.dtype == np.int64


def test_subset_counts_its_labels_from_zero_again():
    part = images().subset([3, 5, 4])
    assert part.class_names == ("b", "c")
    assert part.labels.tolist() == [1, 0, 1]
    assert part.paths == ("2/3.jpg", "1/5.jpg", "2/4.jpg")


def test_subset_takes_pixels_along():
    data = ImageSet(labels=LABELS, class_names="abc", images=pixels())
    assert data.subset([5, 0]).images[:, 0, 0, 0].tolist() == [5, 0]


def test_of_classes_keeps_all_their_images():
    part = images().of_classes([0, 2])
    assert part.class_names == ("a", "c")
    assert part.labels.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({}, "images=None, paths=None"),
        ({"images": pixels(), "paths": "abcdef"}, "6 entries"),
        ({"images": pixels().astype("float32")}, "float32"),
        ({"images": pixels(5)}, "5 images"),
        ({"paths": "abcdef", "labels": [0, 0, 1, 2, 3, 1]}, r"0\.\.\.3"),
        ({"paths": "abcdef", "class_names": "abcd"}, r"\['d'\]"),
    ],
)
def test_wrong_images_are_refused(arguments, message):
    arguments = {"labels": LABELS, "class_names": "abc"} | arguments
    with pytest.raises(ValueError, match=message):
        ImageSet(**arguments)


def test_a_class_on_two_sides_is_refused():
    with pytest.raises(ValueError, match=r"`train` and `test` of x.*\['c'\]"):
        RetrievalSplits("x", train=images(), test=images("cde"))
    with pytest.raises(ValueError, match="`test` and `validation`"):
        RetrievalSplits(
            "x",
            train=images(),
            test=images("def"),
            validation=images("fgh"),
        )


def test_query_and_gallery_come_together():
    sides = {"train": images(), "test": images("def")}
    with pytest.raises(ValueError, match="gallery=None"):
        RetrievalSplits("x", **sides, query=images("def"))
    with pytest.raises(ValueError, match="same class names"):
        RetrievalSplits(
            "x", **sides, query=images("def"), gallery=images("dfe")
        )


def test_folds_of_validation_classes_partition_the_training_classes():
    train = images("abcdefg", [*range(7), *range(7)])
    splits = RetrievalSplits("x", train=train, test=images("xyz"))
    folds = [splits.with_validation(3, fold) for fold in range(3)]
    names = [fold.validation.class_names for fold in folds]
    assert sorted(sum(names, ())) == list("abcdefg")
    for fold in folds:
        assert len(fold.train) + len(fold.validation) == len(train)


@pytest.mark.parametrize(
    "num_folds, fold, message",
    [(1, 0, "num_folds=1"), (4, 0, "num_folds=4"), (3, 3, "fold=3")],
)
def test_wrong_folds_are_refused(num_folds, fold, message):
    splits = RetrievalSplits("x", train=images(), test=images("xyz"))
    with pytest.raises(ValueError, match=message):
        splits.with_validation(num_folds, fold)
