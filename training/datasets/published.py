"""The papers' benchmarks in their original layouts, split as published."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_gsp.data import ImageSet
from training.datasets.image_set import RetrievalSplits
from training.datasets.layout import check_files, find_root, labeled_images
from training.datasets.tfds_source import is_prepared, tfds_images


def published_splits(
    name: str,
    data_dir: str | Path,
    *,
    num_train_classes: int | None = None,
    expected: Mapping[str, int] | None = None,
) -> RetrievalSplits:
    """Reads a benchmark data set and checks the number of its images.

    `data_dir` may be the folder of TensorFlow Datasets, if it has prepared
    them. `num_train_classes` and `expected` replace the published numbers.
    """
    read, counts, published = PUBLISHED[name]
    if is_prepared(name, data_dir):
        found = tfds_images(name, data_dir)
    else:
        found = read(data_dir)
    if isinstance(found, ImageSet):
        first = np.arange(num_train_classes or published)
        others = np.arange(len(first), found.num_classes)
        sides = found.of_classes(first), found.of_classes(others)
        found = RetrievalSplits(name, *sides)
    sizes = {side: len(images) for side, images in found.sides().items()}
    wrong = [
        f"{side}: {sizes[side]:,} instead of {count:,}"
        for side, count in (counts if expected is None else expected).items()
        if sizes[side] != count
    ]
    if wrong:
        raise ValueError(
            f"{name} must be complete, with the published number of images. "
            f"Received: {'; '.join(wrong)}. Unpack the original archives "
            "again."
        )
    return found


def _cub(data_dir):
    """CUB-200-2011 (Wah et al., 2011): `CUB_200_2011/`."""
    root = find_root(
        data_dir, "CUB-200-2011", "image_class_labels.txt", ["CUB_200_2011.tgz"]
    )
    files, labels, names = (
        dict(line.split() for line in file.splitlines() if line)
        for file in (
            (root / f"{name}.txt").read_text()
            for name in ("images", "image_class_labels", "classes")
        )
    )
    if files.keys() != labels.keys():
        raise ValueError(
            "images.txt and image_class_labels.txt must list the same images. "
            f"Received: {len(files)} and {len(labels)} images in {root}."
        )
    paths = [root / "images" / file for file in files.values()]
    check_files("CUB-200-2011", paths)
    named = [names[labels[number]] for number in files]
    return labeled_images(
        list(zip(paths, named, strict=True)), [*names.values()]
    )


def _cars(data_dir):
    """Cars196 (Krause et al., 2013): `cars_annos.mat` and `car_ims/`."""
    from scipy.io import loadmat

    folder = find_root(data_dir, "Cars196", "cars_annos.mat")
    root = find_root(folder, "Cars196", "car_ims", ["car_ims.tgz"])
    content = loadmat(folder / "cars_annos.mat", squeeze_me=True)
    rows = content["annotations"]
    paths = [root / str(file) for file in rows["relative_im_path"]]
    return ImageSet(
        labels=rows["class"].astype("int64") - 1,
        class_names=tuple(map(str, content["class_names"])),
        paths=check_files("Cars196", paths),
    )


def _online_products(data_dir):
    """Stanford Online Products (Song et al., 2016)."""
    root = find_root(
        data_dir,
        "Stanford Online Products",
        "Ebay_train.txt",
        ["Stanford_Online_Products.zip"],
    )
    sides = {}
    for side in ("train", "test"):
        lines = (root / f"Ebay_{side}.txt").read_text().splitlines()[1:]
        rows = [line.split() for line in lines if line.strip()]
        products = [(root / row[3], int(row[1])) for row in rows]
        name = f"Stanford Online Products ({side})"
        check_files(name, [path for path, _ in products])
        sides[side] = labeled_images(products)
    return RetrievalSplits(name="sop", **sides)


def _in_shop(data_dir):
    """In-shop Clothes Retrieval (Liu et al., 2016), queries and a gallery."""
    list_ = "Eval/list_eval_partition.txt"
    folder = find_root(data_dir, "In-shop", list_)
    file = folder / list_
    root = find_root(folder, "In-shop", "img", ["img.zip", "Img/img.zip"])
    rows: dict[str, list] = {"train": [], "query": [], "gallery": []}
    for number, line in enumerate(file.read_text().splitlines()[2:], start=3):
        row = line.split()
        if not row:
            continue
        if len(row) != 3 or row[2] not in rows:
            raise ValueError(
                f"Every line of {file} must be an image, an item and train, "
                f"query or gallery. Received: line {number}: {line!r}."
            )
        rows[row[2]].append((root / row[0], row[1]))
    tested = rows["query"] + rows["gallery"]
    check_files("In-shop", [path for path, _ in rows["train"] + tested])
    items = sorted({item for _, item in tested})
    return RetrievalSplits(
        name="inshop",
        train=labeled_images(rows["train"]),
        test=labeled_images(tested, items),
        query=labeled_images(rows["query"], items),
        gallery=labeled_images(rows["gallery"], items),
    )


# Reader, published numbers of images, and of training classes where the reader
# returns all images together.
PUBLISHED: dict[str, tuple[Callable[[Any], Any], dict[str, int], Any]] = {
    "cars": (_cars, {"train": 8054, "test": 8131}, 98),
    "cub": (_cub, {"train": 5864, "test": 5924}, 100),
    "inshop": (
        *(_in_shop, {"train": 25882, "query": 14218, "gallery": 12612}),
        None,
    ),
    "sop": (_online_products, {"train": 59551, "test": 60502}, None),
}
