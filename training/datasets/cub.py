"""CUB-200-2011: 200 bird species, the first 100 to learn from."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from training.datasets.class_split import split_by_class
from training.datasets.image_set import ImageSet, RetrievalSplits
from training.datasets.layout import check_counts, check_files, find_root

COUNTS = {"train": 5864, "test": 5924}


def cub(
    data_dir: str | Path,
    *,
    num_train_classes: int = 100,
    expected: Mapping[str, int] | None = COUNTS,
) -> RetrievalSplits:
    """Reads CUB-200-2011 in its original layout.

    Args:
        data_dir: Folder with `CUB_200_2011/` or `CUB_200_2011.tgz`, or one
            of the two itself.
        num_train_classes: Species to learn from, the first ones.
        expected: Images per split to be found.

    Returns:
        The splits, with the published 5,864 and 5,924 images.

    Raises:
        FileNotFoundError: the data set or some of its images are missing.
        ValueError: lists that do not fit together, or other counts.

    Reference:
        Wah et al., The Caltech-UCSD Birds-200-2011 Dataset (2011).
    """
    root = find_root(
        data_dir, "CUB-200-2011", "image_class_labels.txt", ["CUB_200_2011.tgz"]
    )
    files = _column(root / "images.txt")
    labels = _column(root / "image_class_labels.txt")
    names = _column(root / "classes.txt")
    if files.keys() != labels.keys():
        raise ValueError(
            "images.txt and image_class_labels.txt must list the same images. "
            f"Received: {len(files)} and {len(labels)} images in {root}."
        )
    paths = [root / "images" / files[number] for number in files]
    check_files("CUB-200-2011", paths)
    classes = list(names)
    images = ImageSet(
        labels=np.array([classes.index(labels[n]) for n in files], "int64"),
        class_names=tuple(names.values()),
        paths=tuple(paths),
    )
    splits = split_by_class(
        images, "cub", num_train_classes=num_train_classes, seed=None
    )
    return check_counts(splits, expected)


def _column(file):
    lines = file.read_text().splitlines()
    return dict(line.split(maxsplit=1) for line in lines if line.strip())
