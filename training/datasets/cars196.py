"""Cars196: 196 car models, the first 98 to learn from."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from training.datasets.class_split import split_by_class
from training.datasets.image_set import ImageSet, RetrievalSplits
from training.datasets.layout import check_counts, check_files, find_root

COUNTS = {"train": 8054, "test": 8131}
_LABELED_TEST = "cars_test_annos_withlabels.mat"


def cars196(
    data_dir: str | Path,
    *,
    num_train_classes: int = 98,
    expected: Mapping[str, int] | None = COUNTS,
) -> RetrievalSplits:
    """Reads Cars196 in either of its two original layouts.

    Args:
        data_dir: Folder with `cars_annos.mat` and `car_ims/` (or
            `car_ims.tgz`); or with `cars_train/`, `cars_test/`, `devkit/`
            (or `cars_train.tgz`, `cars_test.tgz`, `car_devkit.tgz`) and
            `cars_test_annos_withlabels.mat`.
        num_train_classes: Models to learn from, the first ones.
        expected: Images per split to be found.

    Returns:
        The splits, with the published 8,054 and 8,131 images.

    Raises:
        FileNotFoundError: lists or images are missing.
        ValueError: other counts.

    Reference:
        Krause et al., 3D Object Representations for Fine-Grained
        Categorization (2013).
    """
    folder = Path(data_dir or "").expanduser()
    if data_dir is not None and (folder / "cars_annos.mat").is_file():
        paths, labels, names = _one_list(folder)
    else:
        paths, labels, names = _two_lists(data_dir)
    check_files("Cars196", paths)
    images = ImageSet(
        labels=np.asarray(labels) - 1,
        class_names=tuple(names),
        paths=tuple(paths),
    )
    splits = split_by_class(
        images, "cars", num_train_classes=num_train_classes, seed=None
    )
    return check_counts(splits, expected)


def _one_list(folder):
    root = find_root(folder, "Cars196", "car_ims", ["car_ims.tgz"])
    content = _read(folder / "cars_annos.mat")
    rows = content["annotations"]
    paths = [root / str(row["relative_im_path"]) for row in rows]
    return paths, [row["class"] for row in rows], content["class_names"]


def _two_lists(data_dir):
    devkit = find_root(
        data_dir, "Cars196", "devkit/cars_meta.mat", ["car_devkit.tgz"]
    )
    paths, labels = [], []
    for part in ("train", "test"):
        root = find_root(
            data_dir, "Cars196", f"cars_{part}", [f"cars_{part}.tgz"]
        )
        for row in _read(_list_of(part, data_dir, devkit))["annotations"]:
            paths.append(root / f"cars_{part}" / str(row["fname"]))
            labels.append(row["class"])
    names = _read(devkit / "devkit" / "cars_meta.mat")["class_names"]
    return paths, labels, names


def _list_of(part, data_dir, devkit):
    if part == "train":
        return devkit / "devkit" / "cars_train_annos.mat"
    if (devkit / "devkit" / _LABELED_TEST).is_file():
        return devkit / "devkit" / _LABELED_TEST
    return find_root(data_dir, "Cars196", _LABELED_TEST) / _LABELED_TEST


def _read(file):
    from scipy.io import loadmat

    content = loadmat(file, squeeze_me=True)
    if "annotations" in content:
        content["annotations"] = [
            dict(zip(row.dtype.names, row, strict=True))
            for row in np.atleast_1d(content["annotations"])
        ]
    if "class_names" in content:
        content["class_names"] = [
            str(name) for name in np.atleast_1d(content["class_names"])
        ]
    return content
