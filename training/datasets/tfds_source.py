"""The benchmark data sets from TensorFlow Datasets (TFDS)."""

from pathlib import Path
from typing import Any

import numpy as np

from keras_gsp.data import ImageSet
from keras_gsp.data.archives import cache_folder
from keras_gsp.storage.whole import whole_folder
from training.datasets.image_set import RetrievalSplits
from training.datasets.published import checked_splits

# Word -> TFDS name and the feature that holds the class. In-shop, which TFDS
# does not have, is read from its original layout alone.
SOURCES = {
    "cub": ("caltech_birds2011", "label"),
    "cars": ("cars196", "label"),
    "sop": ("stanford_online_products", "class_id"),
    "cifar10": ("cifar10", "label"),
    "cifar100": ("cifar100", "label"),
    "mnist": ("mnist", "label"),
    "omniglot": ("omniglot", "label"),
}
# TFDS splits these by class itself; it splits the others within classes.
_BY_CLASS = "sop", "omniglot"


def tfds_splits(
    dataset: str,
    data_dir: str | Path | None = None,
    *,
    num_train_classes: int | None = None,
    expected: Any = "published",
) -> RetrievalSplits:
    """Reads a data set that TFDS has prepared in `data_dir`.

    Images of one size come into memory; others are written once, as they are
    encoded, into the cache folder. Other arguments as for `published_splits`.
    """
    if dataset not in SOURCES:
        raise ValueError(
            f"TFDS has {', '.join(SOURCES)}. Received: dataset={dataset!r}."
        )
    builder = _prepared(dataset, data_dir)
    label = SOURCES[dataset][1]
    found: Any
    if dataset in _BY_CLASS:
        sides = [_image_set(builder, [s], label) for s in ("train", "test")]
        found = RetrievalSplits(dataset, *sides)
    else:
        found = _image_set(builder, ["train", "test"], label)
    return checked_splits(dataset, found, num_train_classes, expected)


def _prepared(dataset, data_dir):
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise ImportError(
            "TFDS must be installed for this source: pip install "
            "'keras-gsp[training]'."
        ) from error
    builder = tfds.builder(SOURCES[dataset][0], data_dir=data_dir)
    if not Path(builder.data_path).is_dir():
        raise FileNotFoundError(
            f"TFDS must have {builder.name} prepared. Looked in: "
            f"{builder.data_path}. Prepare it with `tfds build {builder.name}`"
            " and, without a network, --manual_dir and the folder with the "
            "original archives."
        )
    return builder


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
    decoders = {"image": tfds.decode.SkipDecoding()}
    dataset = builder.as_dataset(split=split, decoders=decoders)
    if not folder.is_dir():
        with whole_folder(folder) as aside:
            for number, example in enumerate(tfds.as_numpy(dataset)):
                (aside / f"{number:06d}").write_bytes(example["image"])
    labels = [_label(example[label]) for example in tfds.as_numpy(dataset)]
    return [str(folder / f"{i:06d}") for i in range(len(labels))], labels


def _label(value):
    return value.decode() if isinstance(value, bytes) else int(value)
