"""Folders and lists of a user's own images, split by class."""

import warnings
from pathlib import Path

import numpy as np

from keras_gsp.data import ImageSet, image_folder
from keras_gsp.data.listed_files import BOX, csv_rows
from training.datasets.image_set import RetrievalSplits
from training.datasets.layout import labeled_images

_SPLITS = ("train", "test", "query", "gallery", "validation")


def folder_splits(
    data_dir: str | Path, *, decisions: str | Path | None = None
) -> RetrievalSplits:
    """Splits a folder of images by class; `decisions` as for `image_folder`.

    A folder with `train` and `test` (and perhaps `validation`) folders of
    different classes keeps its split. Otherwise each class is drawn by its
    name, about half for training.
    """
    images = image_folder(data_dir, decisions=decisions)
    if images.num_classes < 2:
        raise ValueError(
            "`data_dir` must have a folder of images for each class, or be a "
            "CSV list with the columns path and label (training.train csv). "
            f"Received: {len(images)} images of one class, in {data_dir}."
        )
    name = Path(str(data_dir)).name.split(".")[0]
    sides = {path.split("/")[0] for path in images.class_names}
    if {"train", "test"} <= sides <= {"train", "test", "validation"}:
        named = _named_sides(images)
        names = [one for side in named.values() for one in side.class_names]
        if len(names) == len(set(names)):
            return RetrievalSplits(name=name, **named)
        # The same classes on both sides: a classification data set.
        images = merged_sides(images)
    return RetrievalSplits(name, *images.split_classes())


def merged_sides(images: ImageSet) -> ImageSet:
    """Merges `train/CLASS` and `test/CLASS` by class; others stay."""
    if {name.split("/")[0] for name in images.class_names} != {"train", "test"}:
        return images
    names = [name.partition("/")[2] for name in images.class_names]
    merged, labels = np.unique(names, return_inverse=True)
    return ImageSet(labels[images.labels], tuple(merged), None, images.paths)


def csv_splits(
    csv_file: str | Path,
    *,
    on_missing: str = "raise",
    decisions: str | Path | None = None,
) -> RetrievalSplits:
    """Reads a list with the columns `path`, `label` and perhaps `split`.

    `split` is `train`, `test`, `validation`, `query` or `gallery`; without the
    column, classes are drawn. `test` begins with the rows of `query` and
    `gallery`. `on_missing` and `decisions` as for `gsp.data.ImageSet.from_csv`.
    """
    name = Path(csv_file).stem
    rows = csv_rows(csv_file, on_missing=on_missing, decisions=decisions)
    if {*BOX} <= {*rows[0]}:
        warnings.warn(
            f"The columns {', '.join(BOX)} of {name} are not used: commands "
            "read whole images. `gsp.data.image_batches` crops.",
            stacklevel=2,
        )
    if "split" not in rows[0]:
        images = labeled_images([(row["path"], row["label"]) for row in rows])
        return RetrievalSplits(name, *images.split_classes())
    sides: dict[str, list] = {side: [] for side in _SPLITS}
    for number, row in enumerate(rows, start=2):
        if row["split"] not in sides:
            raise ValueError(
                f"`split` must be one of {', '.join(_SPLITS)}. Received: "
                f"{row['split']!r} in line {number} of {csv_file}."
            )
        sides[row["split"]].append((row["path"], row["label"]))
    sides["test"] = sides["query"] + sides["gallery"] + sides["test"]
    if not (sides["train"] and sides["test"]):
        raise ValueError(
            f"{name} must have images to train with and to score. Received: "
            f"{ {side: len(found) for side, found in sides.items()} }."
        )
    parts = {side: labeled_images(rows) for side, rows in sides.items() if rows}
    return RetrievalSplits(name=name, **parts)


def _named_sides(images):
    sides = {}
    names = [name.partition("/") for name in images.class_names]
    for side in ("train", "test", "validation"):
        labels = [i for i, (one, *_) in enumerate(names) if one == side]
        if labels:
            found = images.of_classes(labels)
            own = tuple(names[label][2] for label in labels)
            sides[side] = ImageSet(found.labels, own, None, found.paths)
    return sides
