"""The same data sets out of TensorFlow Datasets (TFDS)."""

import shutil
import socket
from pathlib import Path
from typing import Any

import numpy as np

from training.datasets import cars196, cifar, cub, in_shop, mnist, omniglot
from training.datasets import stanford_online_products as sop
from training.datasets.archives import cache_folder
from training.datasets.class_split import split_by_class
from training.datasets.image_set import ImageSet, RetrievalSplits
from training.datasets.layout import check_counts

# Word -> TFDS name, feature with the class, its splits, published counts.
SOURCES = {
    "cub": ("caltech_birds2011", "label", ("train", "test"), cub.COUNTS),
    "cars": ("cars196", "label", ("train", "test"), cars196.COUNTS),
    "sop": (
        "stanford_online_products",
        "class_id",
        ("train", "test"),
        sop.COUNTS,
    ),
    "inshop": (
        "in_shop",
        "item",
        ("train", "query", "gallery"),
        in_shop.COUNTS,
    ),
    "cifar10": ("cifar10", "label", ("train", "test"), cifar.CIFAR10_COUNTS),
    "cifar100": ("cifar100", "label", ("train", "test"), cifar.CIFAR100_COUNTS),
    "mnist": ("mnist", "label", ("train", "test"), mnist.COUNTS),
    "omniglot": ("omniglot", "label", ("train", "test"), omniglot.COUNTS),
}
# TFDS splits these by class itself; it splits the others within classes.
_BY_CLASS = "sop", "inshop", "omniglot"
_HOST = "storage.googleapis.com", 443


def tfds_splits(
    dataset: str,
    data_dir: str | Path | None = None,
    *,
    download: bool = False,
    manual_dir: str | Path | None = None,
    expected: Any = "published",
) -> RetrievalSplits:
    """Reads a prepared TFDS data set into retrieval splits.

    Images of one size come into memory; others are written once, as they
    are encoded, into the cache folder.

    Args:
        dataset: One of `SOURCES`.
        data_dir: TFDS's folder; None is `~/tensorflow_datasets`.
        download: Download and prepare it if it is not there.
        manual_dir: Folder with the original archives under their registered
            names, from which to prepare without a network; for In-shop the
            unpacked data set.
        expected: Images per split to be found.

    Returns:
        The splits.

    Raises:
        FileNotFoundError: not prepared, and nothing to prepare it from.
        ConnectionError: `download` without a network; at once.
        ImportError: TFDS is not installed.
        ValueError: other counts.
    """
    published = SOURCES[dataset][3]
    builder = _prepared(dataset, data_dir, download, manual_dir)
    counts = published if expected == "published" else expected
    return check_counts(_splits(dataset, builder), counts)


def _splits(dataset, builder):
    _, label, names, _ = SOURCES[dataset]
    if dataset not in _BY_CLASS:
        sizes = {"cub": 100, "cars": 98}
        return split_by_class(
            _image_set(builder, names, label),
            dataset,
            num_train_classes=sizes.get(dataset),
            seed=None,
        )
    parts = {name: _image_set(builder, [name], label) for name in names}
    if dataset == "inshop":
        parts["test"] = _image_set(builder, ["query", "gallery"], label)
    return RetrievalSplits(name=dataset, **parts)


def _prepared(dataset, data_dir, download, manual_dir):
    builder = _builder(dataset, data_dir)
    if Path(builder.data_path).is_dir():
        return builder
    if not download and manual_dir is None:
        raise FileNotFoundError(
            f"TFDS must have {builder.name} prepared. Looked in: "
            f"{builder.data_path}. Prepare it with `python -m "
            f"training.datasets.prepare {dataset}` and --download, or "
            "--manual-dir and the folder with the original archives."
        )
    if download and manual_dir is None:
        _check_network(builder.name)
    import tensorflow_datasets as tfds

    builder.download_and_prepare(
        download_config=tfds.download.DownloadConfig(
            manual_dir=manual_dir, try_download_gcs=False
        )
    )
    return builder


def _builder(dataset, data_dir):
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise ImportError(
            "TFDS must be installed for this source: pip install "
            "'keras-gsp[training]'."
        ) from error
    if dataset == "inshop":
        from training.datasets.in_shop_builder import InShop

        return InShop(data_dir=data_dir)
    return tfds.builder(SOURCES[dataset][0], data_dir=data_dir)


def _check_network(name):
    # TFDS itself would retry for minutes.
    try:
        socket.create_connection(_HOST, timeout=5).close()
    except OSError as error:
        raise ConnectionError(
            f"A network must be there to download {name}. Received: {error}."
        ) from error


def _image_set(builder, splits, label):
    is_fixed = None not in builder.info.features["image"].shape
    read = _in_memory if is_fixed else _as_files
    parts = [read(builder, split, label) for split in splits]
    images = [image for images, _ in parts for image in images]
    found = [label for _, labels in parts for label in labels]
    values, labels = np.unique(found, return_inverse=True)
    names = list(values)
    feature = builder.info.features[label]
    if hasattr(feature, "int2str"):
        names = [feature.int2str(int(name)) for name in names]
    return ImageSet(
        labels=labels,
        class_names=tuple(map(str, names)),
        images=np.stack(images) if is_fixed else None,
        paths=None if is_fixed else tuple(images),
    )


def _in_memory(builder, split, label):
    import tensorflow_datasets as tfds

    examples = list(tfds.as_numpy(builder.as_dataset(split=split)))
    images = np.stack([example["image"] for example in examples])
    if images.shape[-1] == 1:
        images = np.repeat(images, 3, axis=-1)
    return images, [_label(example[label]) for example in examples]


def _as_files(builder, split, label):
    import tensorflow_datasets as tfds

    folder = cache_folder() / "tfds" / builder.info.full_name / split
    dataset = builder.as_dataset(
        split=split, decoders={"image": tfds.decode.SkipDecoding()}
    )
    aside = folder.with_name(f".writing-{split}")
    is_written = folder.is_dir()
    if not is_written:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
    paths, labels = [], []
    for number, example in enumerate(tfds.as_numpy(dataset)):
        name = f"{number:06d}"
        if not is_written:
            (aside / name).write_bytes(example["image"])
        paths.append(str(folder / name))
        labels.append(_label(example[label]))
    if not is_written:
        aside.rename(folder)
    return paths, labels


def _label(value):
    return value.decode() if isinstance(value, bytes) else int(value)
