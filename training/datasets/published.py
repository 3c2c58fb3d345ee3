"""The benchmark data sets in their original layouts, split as published."""

import gzip
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from keras_gsp.data import ImageSet, image_folder
from keras_gsp.data.archives import is_archive, unpacked
from training.datasets.image_set import RetrievalSplits
from training.datasets.layout import (
    check_files,
    find_root,
    labeled_images,
)
from training.datasets.own_images import folder_splits

CIFAR_NAMES = {10: "batches.meta.txt", 100: "fine_label_names.txt"}
_CIFAR_PIXELS = 32 * 32 * 3


@dataclass(frozen=True)
class Published:
    """One benchmark data set.

    `read` maps a folder or archive to all images, which are split by class, or
    to splits; `counts` are the published numbers of images. Training takes the
    first `num_train_classes`, by default half.
    """

    read: Callable[[Any], ImageSet | RetrievalSplits]
    counts: Mapping[str, int]
    num_train_classes: int | None = None


def published_splits(
    name: str,
    data_dir: str | Path,
    *,
    num_train_classes: int | None = None,
    expected: Mapping[str, int] | str | None = "published",
) -> RetrievalSplits:
    """Reads a benchmark data set and checks the number of its images.

    `num_train_classes` counts where the reader returns all images together;
    `expected=None` checks no number.
    """
    found = PUBLISHED[name].read(data_dir)
    return checked_splits(name, found, num_train_classes, expected)


def checked_splits(
    name: str,
    found: ImageSet | RetrievalSplits,
    num_train_classes: int | None,
    expected: Mapping[str, int] | str | None,
) -> RetrievalSplits:
    """Splits images by class as published, and checks their number."""
    data = PUBLISHED[name]
    if isinstance(found, ImageSet):
        wanted = num_train_classes or data.num_train_classes
        found = RetrievalSplits(name, *found.split(wanted, seed=None))
    counts: Any = data.counts if expected == "published" else expected or {}
    sizes = {side: len(images) for side, images in found.sides().items()}
    wrong = [
        f"{side}: {sizes.get(side, 0):,} instead of {count:,}"
        for side, count in counts.items()
        if sizes.get(side, 0) != count
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
    """In-shop Clothes Retrieval (Liu et al., 2016), queries and a gallery.

    `Eval/list_eval_partition.txt`, images in `Img/img/` or `Img/img.zip`.
    """
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


def cifar_root(data_dir: str | Path, kind: int) -> Path:
    """Finds the binary files of CIFAR-10 or CIFAR-100 (`kind`)."""
    archives = [f"cifar-{kind}-binary.tar.gz"]
    return find_root(data_dir, f"CIFAR-{kind}", CIFAR_NAMES[kind], archives)


def cifar_records(file: Path, num_labels: int) -> tuple[Any, Any]:
    """Reads labels (n, num_labels) and images (n, 32, 32, 3) of a CIFAR file.

    CIFAR-10 has 1 label byte before the pixels of an image, CIFAR-100 has 2:
    coarse, fine.
    """
    content = np.frombuffer(file.read_bytes(), "uint8")
    length = num_labels + _CIFAR_PIXELS
    if not content.size or content.size % length:
        raise ValueError(
            f"{file} must hold records of {length} bytes. Received: "
            f"{content.size} bytes."
        )
    records = content.reshape(-1, length)
    planes = records[:, num_labels:].reshape(-1, 3, 32, 32)
    return records[:, :num_labels], planes.transpose(0, 2, 3, 1)


def _cifar(data_dir, kind):
    """CIFAR from its binary files, or a folder of `train` and `test`."""
    try:
        root = cifar_root(data_dir, kind)
    except FileNotFoundError as missing:
        try:
            splits = folder_splits(data_dir, seed=None)
        except FileNotFoundError:
            raise missing from None
        return RetrievalSplits(f"cifar{kind}", splits.train, splits.test)
    # One label and several files of training images, or two labels and one.
    train = "data_batch_*.bin" if kind == 10 else "train.bin"
    test = "test_batch.bin" if kind == 10 else "test.bin"
    files = [*sorted(root.glob(train)), root / test]
    parts = [cifar_records(file, 1 if kind == 10 else 2) for file in files]
    return ImageSet(
        labels=np.concatenate([labels[:, -1] for labels, _ in parts]),
        class_names=tuple((root / CIFAR_NAMES[kind]).read_text().split()),
        images=np.concatenate([images for _, images in parts]),
    )


def _mnist(data_dir):
    """MNIST's four original files, `.gz`."""
    images, labels = [], []
    for part in ("train", "t10k"):
        images.append(_idx(data_dir, f"{part}-images-idx3-ubyte", 3))
        labels.append(_idx(data_dir, f"{part}-labels-idx1-ubyte", 1))
    gray = np.concatenate(images)
    return ImageSet(
        labels=np.concatenate(labels),
        class_names=tuple("0123456789"),
        images=np.repeat(gray[..., None], 3, axis=-1),
    )


def _idx(data_dir, name, rank):
    file = find_root(data_dir, "MNIST", f"{name}.gz") / f"{name}.gz"
    content = gzip.decompress(file.read_bytes())
    sizes = np.frombuffer(content, ">i4", count=1 + rank)
    start = 4 * (1 + rank)
    if sizes[0] != 0x800 + rank or len(content) != start + np.prod(sizes[1:]):
        raise ValueError(
            f"{file} must be a whole idx file of rank {rank}. Received: "
            f"{len(content)} bytes that start with {content[:4]!r}."
        )
    return np.frombuffer(content, "uint8", offset=start).reshape(sizes[1:])


def _omniglot(data_dir):
    """Omniglot (Lake et al., 2015): evaluation characters are unseen.

    `images_background/` and `images_evaluation/` or their zip files; one of
    the small background sets alone is split by character.
    """
    root = Path(data_dir).expanduser()
    root = unpacked(root) if is_archive(root) else root
    parts = []
    for name in ("images_background", "images_evaluation"):
        folder, archive = root / name, root / f"{name}.zip"
        if not folder.is_dir() and archive.is_file():
            folder = unpacked(archive) / name
        parts.append(folder)
    if not all(part.is_dir() for part in parts):
        return image_folder(data_dir)
    return RetrievalSplits("omniglot", *map(image_folder, parts))


_HALVES = {"train": 30000, "test": 30000}
PUBLISHED = {
    "cars": Published(_cars, {"train": 8054, "test": 8131}, 98),
    "cifar10": Published(partial(_cifar, kind=10), _HALVES),
    "cifar100": Published(partial(_cifar, kind=100), _HALVES),
    "cub": Published(_cub, {"train": 5864, "test": 5924}, 100),
    "inshop": Published(
        _in_shop, {"train": 25882, "query": 14218, "gallery": 12612}
    ),
    "mnist": Published(_mnist, {"train": 35735, "test": 34265}),
    "omniglot": Published(_omniglot, {"train": 19280, "test": 13180}),
    "sop": Published(_online_products, {"train": 59551, "test": 60502}),
}
