"""In-shop Clothes Retrieval: queries and gallery of unseen garments."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from training.datasets.image_set import ImageSet, RetrievalSplits
from training.datasets.layout import check_counts, check_files, find_root

COUNTS = {"train": 25882, "query": 14218, "gallery": 12612}
LIST = "list_eval_partition.txt"


def in_shop(
    data_dir: str | Path, *, expected: Mapping[str, int] | None = COUNTS
) -> RetrievalSplits:
    """Reads In-shop Clothes Retrieval in its original layout.

    Args:
        data_dir: Folder with `list_eval_partition.txt` (or
            `Eval/list_eval_partition.txt`) and the images in `img/`,
            `Img/img/`, `img.zip` or `Img/img.zip`.
        expected: Images per split to be found.

    Returns:
        The splits, with the published 25,882 images to learn from, 14,218
        queries and a gallery of 12,612; `test` is the last two together.

    Raises:
        FileNotFoundError: the list or some of its images are missing.
        ValueError: a line that cannot be read, or other counts.

    Reference:
        Liu et al., DeepFashion (CVPR 2016).
    """
    rows = partition(data_dir)
    root = image_root(data_dir)
    chosen = {
        status: [row for row in rows if row[2] == status]
        for status in ("train", "query", "gallery")
    }
    tested = chosen["query"] + chosen["gallery"]
    items = sorted({row[1] for row in tested})
    splits = RetrievalSplits(
        name="inshop",
        train=_part(root, chosen["train"]),
        test=_part(root, tested),
        query=_part(root, chosen["query"], items),
        gallery=_part(root, chosen["gallery"], items),
    )
    return check_counts(splits, expected)


def partition(data_dir: str | Path) -> list[tuple[str, str, str]]:
    """The lines of the published list: image, item, status."""
    try:
        file = find_root(data_dir, "In-shop", LIST) / LIST
    except FileNotFoundError:
        file = find_root(data_dir, "In-shop", f"Eval/{LIST}") / "Eval" / LIST
    rows = []
    for number, line in enumerate(file.read_text().splitlines()[2:], start=3):
        row = tuple(line.split())
        if not row:
            continue
        if len(row) != 3 or row[2] not in COUNTS:
            raise ValueError(
                f"Every line of {file} must be an image, an item and train, "
                f"query or gallery. Received: line {number}: {line!r}."
            )
        rows.append(row)
    return rows


def image_root(data_dir: str | Path) -> Path:
    """The folder below which the images of the list lie."""
    archives = ["img.zip", "Img/img.zip"]
    try:
        return find_root(data_dir, "In-shop", "img", archives)
    except FileNotFoundError:
        return find_root(data_dir, "In-shop", "Img/img", archives) / "Img"


def _part(root, rows, items=None):
    paths = tuple(root / row[0] for row in rows)
    check_files("In-shop", paths)
    names = items or sorted({row[1] for row in rows})
    positions = {name: label for label, name in enumerate(names)}
    labels = np.array([positions[row[1]] for row in rows], "int64")
    return ImageSet(labels=labels, class_names=tuple(names), paths=paths)
