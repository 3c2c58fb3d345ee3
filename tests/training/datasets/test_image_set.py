import pytest

from tests.data.test_image_set import images
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
    for folds, fold in ((8, 0), (3, 3)):
        with pytest.raises(ValueError, match=f"validation_folds={folds} for 7"):
            splits.with_validation(folds, fold)
