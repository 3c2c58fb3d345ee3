"""Finds a data set on disk."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_gsp.data import ImageSet
from keras_gsp.data.archives import is_archive, unpacked
from keras_gsp.data.listed_files import image_root


def images_root(data_dir: str | Path) -> Path:
    """The folder that images are named below: of a list, its own."""
    root = image_root(data_dir)
    return root.parent if root.is_file() else root


def find_root(
    data_dir: str | Path, name: str, marker: str, archives: Sequence[str] = ()
) -> Path:
    """Finds the folder that contains `marker`, a path inside the data set.

    Looks in `data_dir`, the folders in it, and archives in it or itself.
    """
    data_dir = Path(data_dir).expanduser()
    if is_archive(data_dir):
        places = [unpacked(data_dir)]
    else:
        packed = [data_dir / archive for archive in archives]
        places = [data_dir]
        places += [unpacked(file) for file in packed if file.is_file()]
    for folder in places:
        below = folder.iterdir() if folder.is_dir() else ()
        for root in (folder, *sorted(path for path in below if path.is_dir())):
            if (root / marker).exists():
                return root
    raise FileNotFoundError(
        f"{name} must hold {' or '.join([repr(marker), *archives])}. Looked "
        f"in: {', '.join(map(str, places))} (and one folder below)"
        + ("." if data_dir.exists() else f"; {data_dir} does not exist.")
    )


def check_files(name: str, paths: Sequence[Path]) -> Sequence[Path]:
    """Returns the files that a list names, if all of them exist."""
    missing = [str(path) for path in paths if not path.is_file()]
    if missing:
        raise FileNotFoundError(
            f"Every image that {name}'s list names must exist. Received: "
            f"{len(missing):,} of {len(paths):,} missing, first {missing[:3]}."
        )
    return paths


def labeled_images(
    rows: Sequence[tuple[str | Path, Any]], names: Sequence | None = None
) -> ImageSet:
    """Makes an `ImageSet` of (path, label) rows, of classes `names`."""
    if names is None:
        names = sorted({label for _, label in rows})
    places = {name: place for place, name in enumerate(names)}
    return ImageSet(
        labels=np.array([places[label] for _, label in rows], "int64"),
        class_names=tuple(map(str, names)),
        paths=[path for path, _ in rows],
    )


def files_digest(paths: Iterable[str]) -> str:
    """Returns a hash of the names, sizes and times of files."""
    digest = hashlib.sha256()
    for path in paths:
        facts = f"{path}: missing"
        if os.path.exists(path):
            status = os.stat(path)
            facts = f"{path}:{status.st_size}:{status.st_mtime_ns}"
        digest.update(facts.encode())
    return digest.hexdigest()
