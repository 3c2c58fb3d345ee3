"""The models that a protocol trains, and which of them are missing."""

from dataclasses import dataclass, replace

from training.datasets.image_set import ImageSet, RetrievalSplits
from training.recipes.recipe import Recipe

NUM_FOLDS = 4


@dataclass(frozen=True)
class Member:
    """One model of a study.

    Args:
        name: Name of its folder.
        recipe: What trains it.
        fold: Which fold of the training classes chooses its weights; None
            where the test classes do.
    """

    name: str
    recipe: Recipe
    fold: int | None

    def splits(self, splits: RetrievalSplits):
        """What it is trained with, chosen on and scored on."""
        if self.fold is None:
            return TestSelectedSplits(splits)
        return splits.with_validation(NUM_FOLDS, self.fold)


class TestSelectedSplits:
    """Splits whose test images also choose the weights.

    `RetrievalSplits` refuses this, rightly: the scores are too good. The
    conventional protocol is defined by it.

    Args:
        splits: The data set.
    """

    __test__ = False  # no test, whatever its name says to pytest

    def __init__(self, splits: RetrievalSplits):
        self.name = splits.name
        self.train = splits.train
        self.test = self.validation = splits.test
        self.query, self.gallery = splits.query, splits.gallery

    validation: ImageSet


def members_of(recipe: Recipe) -> list[Member]:
    """The models of a recipe's protocol.

    Args:
        recipe: Its `protocol` is `"fair"` or `"conventional"`; every model
            is trained `repeats` times, with the seeds from `seed` on.

    Returns:
        The members, all repeats of a fold together.
    """
    folds = range(NUM_FOLDS) if recipe.protocol == "fair" else [None]
    return [
        _member(recipe, fold, repeat)
        for fold in folds
        for repeat in range(recipe.repeats)
    ]


def _member(recipe, fold, repeat):
    seed = recipe.seed + repeat
    name = f"seed{seed}" if fold is None else f"fold{fold}-seed{seed}"
    settings = {"protocol": "single", "seed": seed}
    if fold is not None:
        settings |= {"validation_folds": NUM_FOLDS, "validation_fold": fold}
    return Member(name, replace(recipe, **settings), fold)
