"""Stanford Online Products: 22,634 products, split as published."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from training.datasets.image_set import ImageSet, RetrievalSplits
from training.datasets.layout import check_counts, check_files, find_root

COUNTS = {"train": 59551, "test": 60502}


def stanford_online_products(
    data_dir: str | Path, *, expected: Mapping[str, int] | None = COUNTS
) -> RetrievalSplits:
    """Reads Stanford Online Products in its original layout.

    Args:
        data_dir: Folder with `Stanford_Online_Products/` or
            `Stanford_Online_Products.zip`, or one of the two itself.
        expected: Images per split to be found.

    Returns:
        The splits, with the published 59,551 and 60,502 images of 11,318
        and 11,316 products.

    Raises:
        FileNotFoundError: the data set or some of its images are missing.
        ValueError: other counts, or a product on both sides.

    Reference:
        Song et al., Deep Metric Learning via Lifted Structured Feature
        Embedding (CVPR 2016).
    """
    root = find_root(
        data_dir,
        "Stanford Online Products",
        "Ebay_train.txt",
        ["Stanford_Online_Products.zip"],
    )
    splits = RetrievalSplits(
        name="sop",
        train=_part(root, "Ebay_train.txt"),
        test=_part(root, "Ebay_test.txt"),
    )
    return check_counts(splits, expected)


def _part(root, list_name):
    rows = [line.split() for line in (root / list_name).open()][1:]
    paths = [root / row[3] for row in rows if row]
    check_files(f"Stanford Online Products ({list_name})", paths)
    products = [int(row[1]) for row in rows if row]
    names, labels = np.unique(products, return_inverse=True)
    return ImageSet(
        labels=labels, class_names=tuple(map(str, names)), paths=tuple(paths)
    )
