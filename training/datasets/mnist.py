"""MNIST: digits 0-4 to learn from, 5-9 unseen."""

import gzip
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from training.datasets.class_split import split_by_class
from training.datasets.image_set import ImageSet, RetrievalSplits
from training.datasets.layout import check_counts, find_root

COUNTS = {"train": 35735, "test": 34265}
_PARTS = "train", "t10k"


def mnist(
    data_dir: str | Path, *, expected: Mapping[str, int] | None = COUNTS
) -> RetrievalSplits:
    """Reads MNIST's four original files.

    Args:
        data_dir: Folder with `train-images-idx3-ubyte`,
            `train-labels-idx1-ubyte` and the two `t10k-` files, with or
            without `.gz`.
        expected: Images per split to be found.

    Returns:
        The splits: all 70,000 images, by digit, with three equal channels.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a damaged file, or other counts.
    """
    parts = [
        (
            _read(data_dir, f"{part}-images-idx3-ubyte", 3),
            _read(data_dir, f"{part}-labels-idx1-ubyte", 1),
        )
        for part in _PARTS
    ]
    gray = np.concatenate([images for images, _ in parts])
    images = ImageSet(
        labels=np.concatenate([labels for _, labels in parts]),
        class_names=tuple("0123456789"),
        images=np.repeat(gray[..., None], 3, axis=-1),
    )
    return check_counts(split_by_class(images, "mnist", seed=None), expected)


def _read(data_dir, name, rank):
    file = _file(data_dir, name)
    content = file.read_bytes()
    if file.suffix == ".gz":
        content = gzip.decompress(content)
    sizes = np.frombuffer(content, ">i4", count=1 + rank)
    if sizes[0] != 0x800 + rank or len(content) != (
        4 * (1 + rank) + np.prod(sizes[1:])
    ):
        raise ValueError(
            f"{file} must be a whole idx file of rank {rank}. Received: "
            f"{len(content)} bytes that start with {content[:4]!r}."
        )
    pixels = np.frombuffer(content, "uint8", offset=4 * (1 + rank))
    return pixels.reshape(sizes[1:])


def _file(data_dir, name) -> Path:
    try:
        return find_root(data_dir, "MNIST", name) / name
    except FileNotFoundError:
        return find_root(data_dir, "MNIST", f"{name}.gz") / f"{name}.gz"
