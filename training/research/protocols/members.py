"""The models that a protocol trains, and which of them are missing."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from training.datasets.image_set import RetrievalSplits
from training.recipes.data import check_classes
from training.recipes.recipe import Recipe

NUM_FOLDS = 4


@dataclass(frozen=True)
class Member:
    """One model of a study.

    Args:
        name: Name of its folder.
        recipe: What trains it.
        protocol: The protocol that it belongs to.
    """

    name: str
    recipe: Recipe
    protocol: str

    def splits(self, splits: RetrievalSplits) -> Any:
        """What it is trained with, chosen on and scored on."""
        if self.protocol == "conventional":
            return TestSelectedSplits(splits)
        if self.protocol == "single" and splits.validation is not None:
            return splits
        return splits.with_validation(
            self.recipe.validation_folds, self.recipe.validation_fold
        )


class TestSelectedSplits:
    """Splits whose test images also choose the weights.

    `RetrievalSplits` refuses this, rightly: the scores are too good. The
    conventional protocol is defined by it.

    Args:
        splits: The data set.
    """

    __test__ = False  # no test, whatever its name says to pytest

    def __init__(self, splits: RetrievalSplits) -> None:
        self.name = splits.name
        self.train = splits.train
        self.test = self.validation = splits.test
        self.query, self.gallery = splits.query, splits.gallery


def members_of(recipe: Recipe) -> list[Member]:
    """The models of a recipe's protocol.

    Args:
        recipe: Its `protocol` decides; every model is trained `repeats`
            times, with the seeds from `seed` on.

    Returns:
        The members, all repeats of a fold together.
    """
    folds = range(NUM_FOLDS) if recipe.protocol == "fair" else [None]
    return [
        _member(recipe, fold, repeat)
        for fold in folds
        for repeat in range(recipe.repeats)
    ]


def check_members(recipes: Iterable[Recipe], splits: RetrievalSplits) -> None:
    """Checks that the training classes of every member fill its batches.

    Args:
        recipes: What is to be trained.
        splits: The data set of all of them, as it is.

    Raises:
        ValueError: fewer classes than a batch or the folds take.
    """
    largest: dict[tuple, Member] = {}
    for recipe in recipes:
        for member in members_of(recipe):
            # Splitting is slow: once for all members that are split alike.
            one = member.recipe
            key = member.protocol, one.validation_folds, one.validation_fold
            other = largest.setdefault(key, member)
            if one.classes_per_batch > other.recipe.classes_per_batch:
                largest[key] = member
    for member in largest.values():
        check_classes(member.recipe, member.splits(splits))


def _member(recipe, fold, repeat):
    seed = recipe.seed + repeat
    name = f"seed{seed}" if fold is None else f"fold{fold}-seed{seed}"
    settings = {"protocol": "single", "seed": seed}
    if fold is not None:
        settings |= {"validation_folds": NUM_FOLDS, "validation_fold": fold}
    return Member(name, replace(recipe, **settings), recipe.protocol)
