from dataclasses import replace

import pytest

from tests.data.test_image_set import LABELS, images
from training.datasets.image_set import RetrievalSplits


def test_sides_that_do_not_fit_each_other_are_refused():
    for test, others, message in (
        ("cde", {}, r"`train` and `test` of x.*\['c'\]"),
        ("def", {"validation": "fgh"}, "`test` and `validation`"),
        ("def", {"query": "def"}, "gallery=None"),
        ("def", {"query": "def", "gallery": "dfe"}, "same class names"),
    ):
        sides = {side: images(names) for side, names in others.items()}
        with pytest.raises(ValueError, match=message):
            RetrievalSplits("x", train=images(), test=images(test), **sides)


def test_folds_of_validation_classes_partition_the_training_classes():
    train = images("abcdefg", [*range(7), *range(7)])
    splits = RetrievalSplits("x", train=train, test=images("xyz"))
    folds = [splits.with_validation(3, fold) for fold in range(3)]
    names = [fold.validation.class_names for fold in folds]
    assert sorted(sum(names, ())) == list("abcdefg")
    for fold in folds:
        assert len(fold.train) + len(fold.validation) == len(train)
    with pytest.raises(ValueError, match="validation_fold=3 of 3 for 7"):
        splits.with_validation(3, 3)
    with pytest.warns(UserWarning, match="7 training classes of x make 7"):
        assert splits.with_validation(8, 0).train.num_classes == 6


def test_a_run_finds_its_classes_in_a_grown_set():
    train, test = images("bdf", LABELS), images("ace", LABELS)
    splits = RetrievalSplits("x", train, test).with_validation(3, 0)
    classes = splits.classes()
    assert splits.of_run(classes) is splits
    grown = images("abcdefg", range(7))
    moved = RetrievalSplits("x", *map(grown.of_classes, ([0, 3, 5], [1, 2, 4])))
    again = moved.of_run(classes)
    assert (
        again.classes()
        == classes
        == {"train": ["d", "f"], "test": ["a", "c", "e"], "validation": ["b"]}
    )
    assert again.train.paths == ("3/3.jpg", "5/5.jpg")
    # Also where queries and gallery are sides of their own.
    sides = {"query": grown, "gallery": grown}
    other = replace(
        moved, **{s: x.of_classes([1, 2, 4]) for s, x in sides.items()}
    )
    assert other.of_run({"train": ["a"], "test": ["c"]}).query.class_names == (
        "c",
    )
    with pytest.raises(ValueError, match=r"1 of 2 training.*\['f'\]"):
        RetrievalSplits("x", train.of_classes([0, 1]), test).of_run(classes)
