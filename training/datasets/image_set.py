"""Image sets split by class for retrieval."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from keras_gsp.data import ImageSet


@dataclass(frozen=True, eq=False)
class RetrievalSplits:
    """A data set split by class: scores are those of unseen classes.

    Each `test` image is a query against all others unless `query` and
    `gallery` (In-shop), of the same classes, are given.
    """

    name: str
    train: ImageSet
    test: ImageSet
    # Each is an `ImageSet` or None.
    query: Any = None
    gallery: Any = None
    validation: Any = None

    def __post_init__(self) -> None:
        if (self.query is None) != (self.gallery is None):
            raise ValueError(
                "`query` and `gallery` must be given together. Received: "
                f"query={_size(self.query)}, gallery={_size(self.gallery)}."
            )
        if self.query and self.query.class_names != self.gallery.class_names:
            raise ValueError(
                "`query` and `gallery` must have the same class names. "
                f"Received: {self.query.num_classes} and "
                f"{self.gallery.num_classes} classes."
            )
        self._check_disjoint()

    def with_validation(self, num_folds: int, fold: int) -> RetrievalSplits:
        """Splits one of `num_folds` runs of training classes off."""
        count = self.train.num_classes
        if 1 < count < num_folds:
            warnings.warn(
                f"{count} training classes of {self.name} make {count} "
                f"validation folds, not {num_folds}.",
                stacklevel=2,
            )
            num_folds = count
        if not fold < num_folds <= count:
            raise ValueError(
                "`validation_fold` must be one of the folds, each of which "
                f"has a training class. Received: validation_fold={fold} of "
                f"{num_folds} for {count} training classes of {self.name}. "
                "Add classes."
            )
        folds = np.array_split(np.arange(count), num_folds)
        kept = np.concatenate(folds[:fold] + folds[fold + 1 :])
        return replace(
            self,
            train=self.train.of_classes(kept),
            validation=self.train.of_classes(folds[fold]),
        )

    def of_run(self, classes: dict[str, list[str]]) -> RetrievalSplits:
        """Gives each side the classes, by name, that a run had there.

        Classes that the run did not know are left out. `ValueError` if those
        of a side are gone, or one that it was trained on.
        """
        if self.classes() == classes:
            return self
        whole = self.every_image()
        missing = {*classes["train"]} - {*whole.class_names}
        made: dict[str, Any] = {
            side: whole.of_names(names) for side, names in classes.items()
        }
        empty = [side for side, part in made.items() if not part]
        if missing or empty:
            raise ValueError(
                f"{self.name} must have the classes of the run. Received: "
                f"{len(missing)} of {len(classes['train'])} training classes "
                f"missing, {sorted(missing)[:5]}; no class for {empty}."
            )
        for side in ("query", "gallery") if self.query else ():
            made[side] = getattr(self, side).of_names(classes["test"])
        return replace(self, **made)

    def classes(self) -> dict[str, list[str]]:
        """Maps the sides that share no class to the names of their classes."""
        sides = self.sides()
        return {
            side: [*part.class_names]
            for side, part in sides.items()
            if side not in ("query", "gallery")
        }

    def sides(self) -> dict[str, ImageSet]:
        """Maps the names of the sides that there are to their images."""
        found = {one.name: getattr(self, one.name) for one in fields(self)[1:]}
        return {side: part for side, part in found.items() if part is not None}

    def scored(self) -> dict[str, ImageSet]:
        """Maps names to what is scored: test images, or queries and gallery."""
        sides = self.sides()
        names = ("query", "gallery") if self.query else ("test",)
        return {name: sides[name] for name in names}

    def mapped(self, change: Callable[[ImageSet], ImageSet]) -> RetrievalSplits:
        """Returns the splits with every side changed."""
        changed: Any = {
            side: change(part) for side, part in self.sides().items()
        }
        return replace(self, **changed)

    def every_image(self) -> ImageSet:
        """Joins all sides to one set, in the order of the sides."""
        # The package imports Keras: not for a command's --help.
        from keras_gsp.data import ImageSet

        sides = [s for s in (self.train, self.validation, self.test) if s]
        starts = np.cumsum([0, *(side.num_classes for side in sides)])
        labels = [s.labels + i for s, i in zip(sides, starts, strict=False)]
        facts = np.concatenate(labels), sum((s.class_names for s in sides), ())
        if sides[0].paths is None:
            return ImageSet(*facts, np.concatenate([s.images for s in sides]))
        return ImageSet(*facts, paths=sum((s.paths for s in sides), ()))

    def _check_disjoint(self):
        classes = self.classes()
        for one, other in combinations(classes, 2):
            shared = {*classes[one]} & {*classes[other]}
            if shared:
                raise ValueError(
                    f"`{one}` and `{other}` of {self.name} must have no class "
                    f"in common. Received: {sorted(shared)[:5]} in both."
                )


def _size(images):
    return None if images is None else f"{len(images)} images"
