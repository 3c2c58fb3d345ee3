"""The benchmark data sets as TensorFlow Datasets (TFDS) has prepared them."""

from pathlib import Path

import numpy as np

from keras_gsp.data import ImageSet
from keras_gsp.data.archives import cache_folder
from keras_gsp.storage.whole import whole_folder
from training.datasets.image_set import RetrievalSplits

# Word -> TFDS name and the feature that holds the class; it has no In-shop.
SOURCES = {
    "cub": ("caltech_birds2011", "label"),
    "cars": ("cars196", "label"),
    "sop": ("stanford_online_products", "class_id"),
}


def is_prepared(dataset: str, data_dir: str | Path) -> bool:
    """Whether `data_dir` is a folder in which TFDS keeps this data set."""
    name = SOURCES.get(dataset, ("",))[0]
    return bool(name) and (Path(data_dir).expanduser() / name).is_dir()


def tfds_images(
    dataset: str, data_dir: str | Path
) -> ImageSet | RetrievalSplits:
    """Reads all images, or the splits by class that TFDS has.

    Images are written once, as they are encoded, into the cache folder.
    """
    import tensorflow_datasets as tfds

    name, label = SOURCES[dataset]
    builder = tfds.builder(name, data_dir=Path(data_dir).expanduser())
    if dataset == "sop":
        sides = [_image_set(builder, [s], label) for s in ("train", "test")]
        return RetrievalSplits(dataset, *sides)
    return _image_set(builder, ["train", "test"], label)


def _image_set(builder, splits, label) -> ImageSet:
    """Joins splits of a builder; `label` is the feature with the class."""
    paths, found = [], []
    for split in splits:
        files, labels = _as_files(builder, split, label)
        paths += files
        found += labels
    values, labels = np.unique(found, return_inverse=True)
    feature = builder.info.features[label]
    names = [str(value) for value in values]
    if hasattr(feature, "int2str"):
        names = [feature.int2str(int(value)) for value in values]
    return ImageSet(labels, tuple(names), paths=tuple(paths))


def _as_files(builder, split, label):
    import tensorflow_datasets as tfds

    folder = cache_folder() / "tfds" / builder.info.full_name / split
    decoders = tfds.decode.PartialDecoding(
        {"image": True, label: True},
        decoders={"image": tfds.decode.SkipDecoding()},
    )
    dataset = builder.as_dataset(split=split, decoders=decoders)
    if not folder.is_dir():
        with whole_folder(folder) as aside:
            for number, example in enumerate(tfds.as_numpy(dataset)):
                (aside / f"{number:06d}").write_bytes(example["image"])
    labels = [_plain(example[label]) for example in tfds.as_numpy(dataset)]
    return [str(folder / f"{i:06d}") for i in range(len(labels))], labels


def _plain(value):
    return value.decode() if isinstance(value, bytes) else int(value)
