"""Any folder of images, one sub-folder per class."""

from pathlib import Path

import numpy as np

from training.datasets.archives import is_archive, unpacked
from training.datasets.class_split import split_by_class
from training.datasets.image_set import ImageSet, RetrievalSplits

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp")


def image_folder(data_dir: str | Path) -> ImageSet:
    """Reads a folder of images; a class is a folder that holds images.

    Args:
        data_dir: The folder, or a zip or tar archive of it. Classes may lie
            at any depth and are named by their path below it.

    Returns:
        The images in order of class and file name, ordered as text.

    Raises:
        FileNotFoundError: no such folder, or no image in it.
    """
    if data_dir is None:
        raise FileNotFoundError(
            "Images must be on disk: name their folder or archive with "
            "`--data-dir`. Received: data_dir=None."
        )
    root = Path(data_dir).expanduser()
    root = unpacked(root) if is_archive(root) else root
    if not root.is_dir():
        raise FileNotFoundError(
            "`data_dir` must be a folder of images or an archive of one. "
            f"Received: data_dir={data_dir}, which is neither."
        )
    paths = [
        path
        for path in root.rglob("*")
        if path.suffix.lower() in IMAGE_ENDINGS
        and not path.name.startswith(".")
    ]
    if not paths:
        raise FileNotFoundError(
            f"{data_dir} must hold images ({', '.join(IMAGE_ENDINGS)}) in one "
            "folder per class. Received: no image at any depth."
        )
    return _by_folder(root, paths)


def image_folder_splits(
    data_dir: str | Path,
    *,
    num_train_classes: int | None = None,
    seed: int | None = 0,
) -> RetrievalSplits:
    """Splits a folder of images by class.

    A folder with `train` and `test` (and perhaps `validation`) folders of
    different classes is split as it is.

    Args:
        data_dir: As for `image_folder`.
        num_train_classes: Classes to train with, drawn at random; half of
            them by default.
        seed: Seed of the draw.

    Returns:
        The splits.

    Raises:
        ValueError: fewer than two classes.
    """
    images = image_folder(data_dir)
    name = Path(data_dir).name.split(".")[0]
    sides = {path.split("/")[0] for path in images.class_names}
    if {"train", "test"} <= sides <= {"train", "test", "validation"}:
        named = _named_sides(images)
        if not _shared_classes(named):
            return RetrievalSplits(name=name, **named)
        # The same classes on both sides: a classification data set.
        images = merged_sides(images)
    return split_by_class(
        images, name, num_train_classes=num_train_classes, seed=seed
    )


def merged_sides(images: ImageSet) -> ImageSet:
    """One set of `train/CLASS` and `test/CLASS`, by class; others as is."""
    if {name.split("/")[0] for name in images.class_names} != {"train", "test"}:
        return images
    names = tuple(name.partition("/")[2] for name in images.class_names)
    merged, labels = np.unique(names, return_inverse=True)
    return ImageSet(
        labels=labels[images.labels],
        class_names=tuple(merged),
        paths=images.paths,
    )


def shared_sides(images: ImageSet) -> tuple[ImageSet, ImageSet] | None:
    """`train/CLASS` and `test/CLASS` of the same classes; None for others."""
    named = _named_sides(images)
    if set(named) != {"train", "test"}:
        return None
    train, test = named["train"], named["test"]
    return (train, test) if train.class_names == test.class_names else None


def _by_folder(root, paths):
    paths = sorted(paths, key=lambda p: (p.parent.as_posix(), p.name))
    folders = [path.parent.relative_to(root).as_posix() for path in paths]
    names, labels = np.unique(folders, return_inverse=True)
    return ImageSet(labels=labels, class_names=tuple(names), paths=paths)


def _named_sides(images):
    sides = {}
    for side in ("train", "test", "validation"):
        classes = [
            label
            for label, name in enumerate(images.class_names)
            if name.split("/")[0] == side
        ]
        if classes:
            sides[side] = _renamed(images.of_classes(classes))
    return sides


def _renamed(images):
    names = tuple(name.partition("/")[2] for name in images.class_names)
    return ImageSet(labels=images.labels, class_names=names, paths=images.paths)


def _shared_classes(sides):
    names = [name for side in sides.values() for name in side.class_names]
    return len(names) != len(set(names))
