"""Labeled images, in memory or on disk, and their retrieval splits."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

_DTYPES = np.uint8, np.float16


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Labeled images, held in memory or named by their files.

    Args:
        labels: (num_images,), int64, each in [0, num_classes).
        class_names: One name per class; every class has an image.
        images: (num_images, height, width, 3), uint8; or feature maps in
            their place, (num_images, height, width, channels), float16; or
            None.
        paths: One file per image, or None. Exactly one of `images` and
            `paths` is given.

    Raises:
        ValueError: lengths differ, a label names no class, a class has no
            image, or the images are neither in memory nor on disk.
    """

    labels: np.ndarray
    class_names: tuple[str, ...]
    # Any of None and what the class says: exactly one of them is there.
    images: Any = None
    paths: Any = None

    def __post_init__(self) -> None:
        _set(self, "labels", np.asarray(self.labels, dtype="int64"))
        _set(self, "class_names", tuple(str(n) for n in self.class_names))
        if (self.images is None) == (self.paths is None):
            raise ValueError(
                "Exactly one of `images` and `paths` must be given. Received: "
                f"images={_shape(self.images)}, paths={_shape(self.paths)}."
            )
        if self.paths is not None:
            _set(self, "paths", tuple(str(path) for path in self.paths))
        elif self.images.ndim != 4 or self.images.dtype not in _DTYPES:
            raise ValueError(
                "`images` must be uint8, or float16 features, of shape "
                "(num_images, height, width, channels). "
                f"Received: {self.images.dtype} of shape "
                f"{self.images.shape}."
            )
        self._check_labels()

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def class_sizes(self) -> np.ndarray:
        """(num_classes,), images per class."""
        return np.bincount(self.labels, minlength=self.num_classes)

    def subset(self, indices: Sequence[int] | np.ndarray) -> "ImageSet":
        """The images at `indices`; classes left without images are dropped.

        Args:
            indices: Positions in [0, num_images), in any order.

        Returns:
            An `ImageSet` whose labels are counted from 0 again, in the order
            of the classes here.
        """
        places = np.asarray(indices, dtype="int64")
        kept, labels = np.unique(self.labels[places], return_inverse=True)
        return ImageSet(
            labels=labels,
            class_names=tuple(self.class_names[label] for label in kept),
            images=None if self.images is None else self.images[places],
            paths=self.paths and tuple(self.paths[i] for i in places),
        )

    def of_classes(self, classes: Sequence[int] | np.ndarray) -> "ImageSet":
        """All images of the given classes, in the order they stand here."""
        return self.subset(np.flatnonzero(np.isin(self.labels, classes)))

    def _check_labels(self):
        length = len(self.paths) if self.images is None else len(self.images)
        if self.labels.shape != (length,):
            raise ValueError(
                "`labels` must have one entry per image. Received: labels of "
                f"shape {self.labels.shape} for {length} images."
            )
        if length and not (
            0 <= self.labels.min() and self.labels.max() < self.num_classes
        ):
            raise ValueError(
                "`labels` must be in [0, num_classes). Received: "
                f"{self.labels.min()}...{self.labels.max()} for "
                f"{self.num_classes} class names."
            )
        empty = np.flatnonzero(self.class_sizes == 0)
        if empty.size:
            raise ValueError(
                "Every class must have an image. Received: none for "
                f"{[self.class_names[i] for i in empty[:5]]} and "
                f"{max(0, empty.size - 5)} other classes."
            )


@dataclass(frozen=True, eq=False)
class RetrievalSplits:
    """A data set split by class: unseen classes are what is scored.

    Args:
        name: Name of the data set.
        train: Images to learn from.
        test: Images of classes that `train` does not have; each is a query
            against all others unless `query` and `gallery` are given.
        query: Queries, where the data set names them (In-shop); else None.
        gallery: What the queries search, given together with `query` and
            with the same class names.
        validation: Images of classes in neither `train` nor `test`, for
            choosing the best weights; None where the data set has none and
            some training classes have to serve.

    Raises:
        ValueError: a class stands on two sides, or only one of `query` and
            `gallery` is given, or their class names differ.
    """

    name: str
    train: ImageSet
    test: ImageSet
    # `ImageSet` or None; what needs them says so where they are missing.
    query: Any = None
    gallery: Any = None
    validation: Any = None

    def __post_init__(self) -> None:
        if (self.query is None) != (self.gallery is None):
            raise ValueError(
                "`query` and `gallery` must be given together. Received: "
                f"query={_shape(self.query)}, gallery={_shape(self.gallery)}."
            )
        if self.query and self.query.class_names != self.gallery.class_names:
            raise ValueError(
                "`query` and `gallery` must have the same class names. "
                f"Received: {self.query.num_classes} and "
                f"{self.gallery.num_classes} classes."
            )
        self._check_disjoint()

    def with_validation(self, num_folds: int, fold: int) -> "RetrievalSplits":
        """Splits one fold of the training classes off for validation.

        Args:
            num_folds: Number of folds, at least 2; fold k holds the k-th of
                `num_folds` equal runs of classes, in their order.
            fold: Which fold validates, in [0, num_folds).

        Returns:
            The splits with the remaining classes as `train`.
        """
        if not (2 <= num_folds <= self.train.num_classes):
            raise ValueError(
                "`num_folds` must be in [2, number of training classes = "
                f"{self.train.num_classes}]. Received: num_folds={num_folds}."
            )
        if not 0 <= fold < num_folds:
            raise ValueError(
                f"`fold` must be in [0, {num_folds}). Received: fold={fold}."
            )
        folds = np.array_split(np.arange(self.train.num_classes), num_folds)
        kept = np.concatenate(folds[:fold] + folds[fold + 1 :])
        return RetrievalSplits(
            name=self.name,
            train=self.train.of_classes(kept),
            test=self.test,
            query=self.query,
            gallery=self.gallery,
            validation=self.train.of_classes(folds[fold]),
        )

    def every_image(self) -> ImageSet:
        """The images of all sides as one set, in the order of the sides."""
        sides = [self.train, self.test]
        if self.validation is not None:
            sides.insert(1, self.validation)
        offsets = np.cumsum([0] + [side.num_classes for side in sides[:-1]])
        labels = [
            side.labels + offset
            for side, offset in zip(sides, offsets, strict=True)
        ]
        in_memory = sides[0].images is not None
        return ImageSet(
            labels=np.concatenate(labels),
            class_names=sum((side.class_names for side in sides), ()),
            images=np.concatenate([side.images for side in sides])
            if in_memory
            else None,
            paths=None
            if in_memory
            else sum((side.paths for side in sides), ()),
        )

    def _check_disjoint(self):
        sides = {"train": self.train, "test": self.test}
        if self.validation is not None:
            sides["validation"] = self.validation
        for one, other in combinations(sides, 2):
            shared = {*sides[one].class_names} & {*sides[other].class_names}
            if shared:
                raise ValueError(
                    f"`{one}` and `{other}` of {self.name} must have no class "
                    f"in common. Received: {sorted(shared)[:5]} in both."
                )


def _set(instance, name, value):
    # The way a frozen dataclass normalizes its own fields.
    object.__setattr__(instance, name, value)


def _shape(images):
    if images is None:
        return None
    return getattr(images, "shape", f"{len(images)} entries")
