"""Labeled images of a folder, of a list or in memory, split by class."""

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from keras_gsp._checks import check_count, check_integer, is_integer
from keras_gsp._labels import as_host_array, composed
from keras_gsp.data.decoding import MAX_PIXELS
from keras_gsp.data.listed_files import (
    boxes_of,
    csv_rows,
    folder_rows,
    unreadable,
    unreadable_text,
)

_DTYPES = np.uint8, np.float16


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Labeled images, as file names or pixels.

    `image_folder` and `ImageSet.from_csv` return one; `image_batches` takes
    one.

    Args:
        labels: (num_images,), integers in [0, num_classes).
        class_names: one name for each class; every class has an image.
        images: (num_images, height, width, 3), uint8; or feature maps
            (num_images, height, width, channels), float16.
        paths: one file for each image, in place of `images`.
        boxes: (num_images, 4), the part of each image that shows the item: x,
            y, width and height in pixels, for `image_batches`.

    Raises:
        ValueError: lengths differ, a label has no class name, a class has no
            image, two classes have one name, a name is not UTF-8, a box is
            outside of its image (of files, left of it or above it), or both or
            neither of `images` and `paths` are given.

    Example:

    ```python
    photos = gsp.data.ImageSet(
        [0, 0, 1], ("cat", "dog"), paths=("a.jpg", "b.jpg", "c.jpg")
    )
    train, test = photos.split_classes()
    assert photos.names.tolist() == ["cat", "cat", "dog"]
    ```
    """

    labels: np.ndarray
    class_names: tuple[str, ...]
    images: Any = None
    paths: Any = None
    boxes: Any = None

    # How often it was split: a part of a part draws its classes anew.
    _num_splits = 0

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

    @classmethod
    def from_csv(
        cls,
        path: str | Path,
        *,
        on_missing: str = "raise",
        decisions: str | Path | None = None,
    ) -> "ImageSet":
        """Lists the images that a CSV file names, with their labels.

        Rows that repeat another are left out with a warning; so is one for an
        image with several labels.

        Args:
            path: the file in UTF-8, with a header line that has the columns
                `path` and `label`. Image paths are relative to its folder, or
                absolute. Labels may be any text. With the columns `x`, `y`,
                `width` and `height`, each row has a box, in pixels.
            on_missing: `"raise"`, or `"skip"`: images that do not exist stay
                in the list, for `readable` to name.
            decisions: as for `image_folder`.

        Returns:
            An `ImageSet` in the order of the list; its classes are sorted.

        Raises:
            FileNotFoundError: no such file, or images that do not exist.
            ValueError: no row, or a row or column that is incomplete; text
                that is not UTF-8; wrong decisions.
        """
        rows = csv_rows(path, on_missing=on_missing, decisions=decisions)
        return _image_set(rows)

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

    def readable(self, *, max_pixels: int = MAX_PIXELS) -> "ImageSet":
        """Decodes every file once and leaves out those that cannot be used.

        A warning names them with the reason. Files of more than `max_pixels`
        are not decoded. `ValueError` if no file is left.
        """
        reasons = unreadable(self.paths or (), max_pixels)
        if not reasons:
            return self
        text = unreadable_text(reasons, len(self))
        if len(reasons) == len({*self.paths}):
            raise ValueError(f"An image must be readable. Received: {text}")
        warnings.warn(f"Images are left out: {text}", stacklevel=2)
        rows = [i for i, path in enumerate(self.paths) if path not in reasons]
        return self.subset(rows)

    def subset(self, indices: Sequence[int] | np.ndarray) -> "ImageSet":
        """Selects images by position, in any order.

        Classes without an image are dropped, and labels count from 0 again.
        """
        rows = np.asarray(indices, dtype="int64")
        classes, labels = np.unique(self.labels[rows], return_inverse=True)
        part = ImageSet(
            labels,
            tuple(self.class_names[label] for label in classes),
            images=None if self.images is None else self.images[rows],
            paths=self.paths and tuple(self.paths[i] for i in rows),
            boxes=None if self.boxes is None else self.boxes[rows],
        )
        _set(part, "_num_splits", self._num_splits)
        return part

    def of_classes(self, classes: Sequence[int] | np.ndarray) -> "ImageSet":
        """Selects all images of the given classes, in their order here."""
        return self.subset(np.flatnonzero(np.isin(self.labels, classes)))

    def of_names(self, names: Sequence[str]) -> "ImageSet":
        """Selects the classes of these names, which number them; others go."""
        numbers = {name: i for i, name in enumerate(self.class_names)}
        order = [numbers[name] for name in names if name in numbers]
        part = self.of_classes(order)
        return replace(
            part,
            labels=np.argsort(order)[part.labels],
            class_names=tuple(self.class_names[i] for i in order),
        )

    def of_each_class(self, count: int) -> "ImageSet":
        """Selects the first `count` images of each class, at least 1."""
        check_count(count=count)
        order = np.argsort(self.labels, kind="stable")
        starts = np.cumsum(self.class_sizes) - self.class_sizes
        ranks = np.arange(len(self)) - np.repeat(starts, self.class_sizes)
        return self.subset(np.sort(order[ranks < count]))

    def split_classes(
        self, train_size: float = 0.5, *, seed: int = 0
    ) -> tuple["ImageSet", "ImageSet"]:
        """Splits by class, to train and to test: no class is on both sides.

        Each class is assigned by its own name and the seed, so that the others
        stay on their side when a class comes or goes. The share of n classes
        is therefore `train_size` give or take about `0.5 / sqrt(n)`, and at
        most 0.2: where names draw more or fewer, the nearest ones change sides,
        with a warning. A side may be split again: its classes are drawn anew.

        Args:
            train_size: share of the classes on the first side, in (0, 1). An
                integer is their exact number, in [1, num_classes); a class
                that comes or goes then moves at most one other.
            seed: an integer; another one draws other sides.

        Returns:
            Two sets, each with its classes in their order here.

        Raises:
            ValueError: fewer than two classes, or an argument out of range.
        """
        check_integer(seed=seed)
        total, is_share = self.num_classes, not is_integer(train_size)
        if total < 2 or not 0 < train_size < (1 if is_share else total):
            raise ValueError(
                "`train_size` must be a share in (0, 1), or a number of "
                "classes that leaves one. Received: "
                f"train_size={train_size}, {total} classes."
            )
        salt = f"{seed} {self._num_splits}"
        draws = np.array([_draw(salt, name) for name in self.class_names])
        order = np.argsort(draws)
        count = int(train_size)
        if is_share:
            drawn = int((draws < train_size).sum())
            low = np.ceil((train_size - 0.2) * total)
            high = np.floor((train_size + 0.2) * total)
            count = int(np.clip(np.clip(drawn, low, high), 1, total - 1))
            if drawn != count:
                moved = order[min(count, drawn) : max(count, drawn)]
                warnings.warn(
                    f"{total} classes are split {count} to {total - count}, "
                    f"not {drawn} to {total - drawn} as drawn by name: "
                    f"{[self.class_names[i] for i in moved[:5]]} changed "
                    "sides.",
                    stacklevel=2,
                )
        sides = self.of_classes(order[:count]), self.of_classes(order[count:])
        for side in sides:
            _set(side, "_num_splits", self._num_splits + 1)
        return sides

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
        for name in {*(self.paths or ()), *self.class_names}:
            # Bytes of a name in another encoding are surrogates.
            if name != name.encode(errors="replace").decode():
                raise ValueError(
                    "Names of files and classes must be UTF-8. Received: "
                    f"{name!a}. Rename it first."
                )
        if len({*self.class_names}) < self.num_classes:
            raise ValueError(
                "Every class must have its own name. "
                f"Received: {self.class_names}."
            )
        empty = np.flatnonzero(self.class_sizes == 0)
        if empty.size:
            raise ValueError(
                f"Every class must have an image. Received: none for "
                f"{empty.size}, {[self.class_names[i] for i in empty[:5]]}."
            )


def image_folder(
    path: str | Path, *, decisions: str | Path | None = None
) -> ImageSet:
    """Lists the images of a folder with one sub-folder per class.

    Each folder is read once, linked ones too. A warning counts files with
    another ending, links that lead nowhere or back, and images beside the
    folders of classes. Nothing is decoded: `ImageSet.readable` does that.

    Args:
        path: the folder, or a zip or tar archive of it. Classes may lie at
            any depth and are named by their path below it, `"dogs/small"`, in
            Unicode's composed form (NFC).
        decisions: a CSV file of images to drop and labels to change, as
            `training.doctor --review` saves them: columns `path` (relative to
            the folder), `decision` (`keep`, `relabel` or `drop`) and `label`
            (the new class, for `relabel`).

    Returns:
        An `ImageSet` in order of class and file name.

    Raises:
        FileNotFoundError: no such folder or file, or no image in it.
        ValueError: a damaged or hostile archive; wrong decisions; names that
            are not UTF-8.

    Example:

    ```python
    import pathlib, tempfile

    root = pathlib.Path(tempfile.mkdtemp())
    for name in ("cat", "dog"):
        (root / name).mkdir()
        (root / name / "1.png").touch()
    photos = gsp.data.image_folder(root)
    assert photos.class_names == ("cat", "dog")
    ```
    """
    return _image_set(folder_rows(path, decisions))


def _image_set(rows):
    names, labels = np.unique([r["label"] for r in rows], return_inverse=True)
    paths = [row["path"] for row in rows]
    return ImageSet(labels, tuple(names), paths=paths, boxes=boxes_of(rows))


def _set(instance, name, value):
    # A frozen dataclass sets its own fields in this way.
    object.__setattr__(instance, name, value)


def _draw(salt, name):
    """A number in [0, 1) that depends on the words alone."""
    words = f"{salt} {composed(name)}".encode()
    digest = hashlib.blake2b(words, digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


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
