"""CIFAR-10 and CIFAR-100: small pictures, the first classes to learn from."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from training.datasets.class_split import split_by_class
from training.datasets.image_folder import image_folder_splits
from training.datasets.image_set import ImageSet, RetrievalSplits
from training.datasets.layout import check_counts, find_root

CIFAR10_COUNTS = {"train": 30000, "test": 30000}
CIFAR100_COUNTS = {"train": 30000, "test": 30000}
_PIXELS = 32 * 32 * 3


def cifar10(
    data_dir: str | Path, *, expected: Mapping[str, int] | None = CIFAR10_COUNTS
) -> RetrievalSplits:
    """Reads CIFAR-10: five classes to learn from, five unseen.

    Args:
        data_dir: Folder with `cifar-10-batches-bin/` or
            `cifar-10-binary.tar.gz`, or one of the two; or an image folder
            (or archive of one) with `train/CLASS/` and `test/CLASS/`.
        expected: Images per split to be found.

    Returns:
        The splits: all 60,000 images, by class.

    Raises:
        FileNotFoundError: none of these layouts is there.
        ValueError: a file of the wrong length, or other counts.
    """
    try:
        root = find_root(
            data_dir, "CIFAR-10", "batches.meta.txt", ["cifar-10-binary.tar.gz"]
        )
    except FileNotFoundError as error:
        return _from_folder(data_dir, "cifar10", expected, error)
    names = (root / "batches.meta.txt").read_text().split()
    files = sorted(root.glob("data_batch_*.bin")) + [root / "test_batch.bin"]
    return _splits("cifar10", files, names, 1, expected)


def cifar100(
    data_dir: str | Path,
    *,
    expected: Mapping[str, int] | None = CIFAR100_COUNTS,
) -> RetrievalSplits:
    """Reads CIFAR-100: fifty classes to learn from, fifty unseen.

    Args:
        data_dir: Folder with `cifar-100-binary/` or
            `cifar-100-binary.tar.gz`, or one of the two; or an image folder
            (or archive of one) with `train/CLASS/` and `test/CLASS/`.
        expected: Images per split to be found.

    Returns:
        The splits: all 60,000 images, by fine class.

    Raises:
        FileNotFoundError: none of these layouts is there.
        ValueError: a file of the wrong length, or other counts.
    """
    try:
        root = cifar100_root(data_dir)
    except FileNotFoundError as error:
        return _from_folder(data_dir, "cifar100", expected, error)
    names = (root / "fine_label_names.txt").read_text().split()
    files = [root / "train.bin", root / "test.bin"]
    return _splits("cifar100", files, names, 2, expected)


def cifar100_root(data_dir: str | Path) -> Any:
    """The folder with CIFAR-100's binary files."""
    return find_root(
        data_dir,
        "CIFAR-100",
        "fine_label_names.txt",
        ["cifar-100-binary.tar.gz"],
    )


def has_cifar100(data_dir: str | Path) -> bool:
    """Whether CIFAR-100's binary files are there."""
    try:
        cifar100_root(data_dir)
    except FileNotFoundError:
        return False
    return True


def binary_records(file: Path, num_labels: int) -> tuple[Any, Any]:
    """Reads one binary file.

    Args:
        file: The file.
        num_labels: Label bytes before each image's pixels; 1 in CIFAR-10,
            2 (coarse, fine) in CIFAR-100.

    Returns:
        Labels (num_images, num_labels) and images (num_images, 32, 32, 3),
        uint8.
    """
    content = np.frombuffer(file.read_bytes(), "uint8")
    length = num_labels + _PIXELS
    if not content.size or content.size % length:
        raise ValueError(
            f"{file} must hold records of {length} bytes. Received: "
            f"{content.size} bytes."
        )
    records = content.reshape(-1, length)
    planes = records[:, num_labels:].reshape(-1, 3, 32, 32)
    return records[:, :num_labels], planes.transpose(0, 2, 3, 1)


def _splits(name, files, names, num_labels, expected):
    parts = [binary_records(file, num_labels) for file in files]
    images = ImageSet(
        labels=np.concatenate([labels[:, -1] for labels, _ in parts]),
        class_names=tuple(names),
        images=np.concatenate([images for _, images in parts]),
    )
    splits = split_by_class(images, name, seed=None)
    return check_counts(splits, expected)


def _from_folder(data_dir, name, expected, missing):
    try:
        splits = image_folder_splits(data_dir, seed=None)
    except (FileNotFoundError, TypeError):
        raise missing from None
    return check_counts(
        RetrievalSplits(name=name, train=splits.train, test=splits.test),
        expected,
    )
