"""Labeled images, in files or in memory, and their split by class."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from keras_gsp._labels import as_host_array

_DTYPES = np.uint8, np.float16


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Labeled images, as file names or pixels.

    `image_folder` and `csv_list` return one; `augmented_batches`,
    `evaluation_batches` and `class_balanced_batches` take what it holds.

    Args:
        labels: (num_images,), integers in [0, num_classes).
        class_names: one name for each class; every class has an image.
        images: (num_images, height, width, 3), uint8; or feature maps
            (num_images, height, width, channels), float16.
        paths: one file for each image, in place of `images`.
        boxes: (num_images, 4), the part of each image that shows the item: x,
            y, width and height in pixels, for `evaluation_batches`.

    Raises:
        ValueError: lengths differ, a label has no class name, a class has no
            image, a box is outside of its image (of files, left of it or above
            it), or both or neither of `images` and `paths` are given.

    Example:

    ```python
    import keras_gsp as gsp

    photos = gsp.data.ImageSet(
        [0, 0, 1], ("cat", "dog"), paths=("a.jpg", "b.jpg", "c.jpg")
    )
    train, test = photos.split()
    assert photos.names.tolist() == ["cat", "cat", "dog"]
    ```
    """

    labels: np.ndarray
    class_names: tuple[str, ...]
    images: Any = None
    paths: Any = None
    boxes: Any = None

    def __post_init__(self) -> None:
        _set(self, "labels", as_host_array(self.labels).astype("int64"))
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
                "`images` must be uint8, or float16 features, (num_images, "
                "height, width, channels). Received: "
                f"{self.images.dtype} of shape {self.images.shape}."
            )
        self._check_labels()
        if self.boxes is not None:
            sides = None if self.images is None else self.images.shape[1:3]
            boxes = checked_boxes(self.boxes, len(self), sides)
            _set(self, "boxes", boxes)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def class_sizes(self) -> np.ndarray:
        """(num_classes,), images of each class."""
        return np.bincount(self.labels, minlength=self.num_classes)

    @property
    def names(self) -> np.ndarray:
        """(num_images,), the class name of each image."""
        return np.array(self.class_names)[self.labels]

    def subset(self, indices: Sequence[int] | np.ndarray) -> "ImageSet":
        """Selects images by position, in any order.

        Classes without an image are dropped, and labels count from 0 again.
        """
        places = np.asarray(indices, dtype="int64")
        kept, labels = np.unique(self.labels[places], return_inverse=True)
        return ImageSet(
            labels,
            tuple(self.class_names[label] for label in kept),
            images=None if self.images is None else self.images[places],
            paths=self.paths and tuple(self.paths[i] for i in places),
            boxes=None if self.boxes is None else self.boxes[places],
        )

    def of_classes(self, classes: Sequence[int] | np.ndarray) -> "ImageSet":
        """Selects all images of the given classes, in their order here."""
        return self.subset(np.flatnonzero(np.isin(self.labels, classes)))

    def of_each_class(self, count: int | None) -> "ImageSet":
        """Selects the first `count` images of each class; `None`: all."""
        order = np.argsort(self.labels, kind="stable")
        starts = np.cumsum(self.class_sizes) - self.class_sizes
        ranks = np.arange(len(self)) - np.repeat(starts, self.class_sizes)
        limit = len(self) if count is None else count
        return self.subset(np.sort(order[ranks < limit]))

    def split(
        self, num_train_classes: int | None = None, *, seed: int | None = 0
    ) -> tuple["ImageSet", "ImageSet"]:
        """Splits by class, to train and to test: no class is on both sides.

        `num_train_classes` is in [1, num_classes), `None` for half of them;
        `seed=None` takes the first classes, as published splits do.
        """
        total = self.num_classes
        wanted = total // 2 if num_train_classes is None else num_train_classes
        if not 1 <= wanted < total:
            raise ValueError(
                f"`num_train_classes` must be in [1, num_classes={total}). "
                f"Received: num_train_classes={wanted}."
            )
        order = np.arange(total)
        if seed is not None:
            order = np.random.default_rng(seed).permutation(total)
        return self.of_classes(order[:wanted]), self.of_classes(order[wanted:])

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
                f"`labels` must be in [0, num_classes={self.num_classes}). "
                f"Received: {self.labels.min()}...{self.labels.max()}."
            )
        empty = np.flatnonzero(self.class_sizes == 0)
        if empty.size:
            raise ValueError(
                f"Every class must have an image. Received: none for "
                f"{empty.size}, {[self.class_names[i] for i in empty[:5]]}."
            )


def _set(instance, name, value):
    # A frozen dataclass sets its own fields in this way.
    object.__setattr__(instance, name, value)


def _shape(images):
    if images is None:
        return None
    return getattr(images, "shape", f"{len(images)} entries")


def checked_boxes(boxes: Any, count: int, sides: Any = None) -> np.ndarray:
    """Returns boxes (count, 4) in whole pixels; `ValueError` for wrong ones.

    `sides` are the height and width of all images, where they are known.
    """
    boxes = as_host_array(boxes, "boxes")
    if boxes.shape != (count, 4) or boxes.dtype.kind not in "iuf":
        raise ValueError(
            f"`boxes` must be ({count}, 4) numbers: x, y, width and "
            f"height. Received: {boxes.dtype} of shape {boxes.shape}."
        )
    whole = np.rint(boxes)
    is_bad = ~((whole >= 0) & (whole < 2**30)).all(axis=1)
    # Before they are rounded: shares of the image are no pixels.
    is_bad |= (boxes[:, 2:] < 1).any(axis=1) | (boxes <= 1).all(axis=1)
    if sides is not None:
        ends = whole[:, :2] + whole[:, 2:]
        is_bad |= (ends > [sides[1], sides[0]]).any(axis=1)
    if is_bad.any():
        first = int(np.argmax(is_bad))
        raise ValueError(
            "`boxes` must lie in their images, in pixels: x and y at least 0, "
            "width and height at least 1. Received: "
            f"{int(is_bad.sum())} outside, the first of image {first}: "
            f"{boxes[first].tolist()}."
        )
    return whole.astype("int64")
