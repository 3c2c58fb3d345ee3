"""Image sets from a folder with one sub-folder per class, or a CSV list."""

import csv
import os
import warnings
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from keras_gsp._checks import check_count
from keras_gsp.data.archives import is_archive, unpacked
from keras_gsp.data.decoding import IMAGE_ENDINGS
from keras_gsp.data.image_set import ImageSet

DECISIONS = "keep", "relabel", "drop"
BOX = "x", "y", "width", "height"


def image_folder(
    path: str | Path,
    *,
    images_per_class: int | None = None,
    decisions: str | Path | None = None,
) -> ImageSet:
    """Lists the images of a folder with one sub-folder per class.

    Files with another ending are left out with a warning that counts and names
    them. Nothing is decoded: `readable_images` does that.

    Args:
        path: the folder, or a zip or tar archive of it. Classes may lie at
            any depth and are named by their path below it, `"dogs/small"`.
        images_per_class: number of files to keep of each class, the first
            ones. `None`: all.
        decisions: a CSV file of images to drop and labels to change, as
            `training.doctor --review` saves them: columns `path` (relative to
            the folder), `decision` (`keep`, `relabel` or `drop`) and `label`
            (the new class, for `relabel`).

    Returns:
        An `ImageSet` in order of class and file name.

    Raises:
        FileNotFoundError: no such folder or file, or no image in it.
        ValueError: a damaged or hostile archive; wrong decisions.

    Example:

    ```python
    import pathlib, tempfile
    import keras_gsp as gsp

    root = pathlib.Path(tempfile.mkdtemp())
    for name in ("cat", "dog"):
        (root / name).mkdir()
        (root / name / "1.png").touch()
    photos = gsp.data.image_folder(root)
    assert photos.class_names == ("cat", "dog")
    ```
    """
    check_count(is_optional=True, images_per_class=images_per_class)
    root = image_root(path)
    if not root.is_dir():
        raise FileNotFoundError(
            "`path` must be a folder of images, or a zip or tar archive of "
            f"one. Received: path={str(path)!r}, which is neither."
        )
    files = sorted(
        (file for file in root.rglob("*") if _is_visible(file, root)),
        key=lambda file: (file.parent.as_posix(), file.name),
    )
    images = [f for f in files if f.suffix.lower() in IMAGE_ENDINGS]
    if others := [f for f in files if f.suffix.lower() not in IMAGE_ENDINGS]:
        warnings.warn(unread_files(others, len(files), root), stacklevel=2)
    if not images:
        raise FileNotFoundError(
            f"{path} must hold images ({', '.join(IMAGE_ENDINGS)}) in one "
            "folder per class. Received: no image at any depth."
        )
    if loose := sum(file.parent == root for file in images):
        warnings.warn(
            f"{loose:,} of {len(images):,} images lie in {root} itself and not "
            'in the folder of a class. Their class is ".".',
            stacklevel=2,
        )
    rows = [
        {"path": str(f), "label": f.parent.relative_to(root).as_posix()}
        for f in images
    ]
    return _image_set(_decided(rows, root, decisions), images_per_class)


def image_root(path: str | Path) -> Path:
    """Returns a folder, or the one that an archive is unpacked to."""
    root = Path(path).expanduser()
    return unpacked(root) if is_archive(root) else root


def csv_list(
    path: str | Path,
    *,
    images_per_class: int | None = None,
    on_missing: str = "raise",
    decisions: str | Path | None = None,
) -> ImageSet:
    """Lists the images that a CSV file names, with their labels.

    Args:
        path: the file in UTF-8, with a header line that has the columns `path`
            and `label`. Image paths are relative to its folder, or absolute.
            Labels may be any text. With the columns `x`, `y`, `width` and
            `height`, each row has a box, in pixels; see `evaluation_batches`.
        images_per_class: as for `image_folder`.
        on_missing: `"raise"`, or `"skip"`: images that do not exist stay in
            the list, for `readable_images` to name.
        decisions: as for `image_folder`.

    Returns:
        An `ImageSet` in the order of the list; its classes are sorted.

    Raises:
        FileNotFoundError: no such file, or images that do not exist.
        ValueError: no row, or a row or column that is incomplete; text that is
            not UTF-8; wrong decisions.
    """
    check_count(is_optional=True, images_per_class=images_per_class)
    rows = csv_rows(path, on_missing=on_missing, decisions=decisions)
    return _image_set(rows, images_per_class)


def csv_rows(
    path: str | Path,
    *,
    on_missing: str = "raise",
    decisions: str | Path | None = None,
) -> list[dict[str, str]]:
    """Reads the checked rows of a list; see `csv_list`."""
    file = Path(path).expanduser()
    rows = _table(file, ("path", "label"), "path")
    if not rows:
        raise ValueError(f"{file} must have a row. Received: 0 rows.")
    for number, row in enumerate(rows, start=2):
        if not row["path"] or not row["label"]:
            raise ValueError(
                f"Every row of {file} must have a path and a label. "
                f"Received: line {number}: {row}."
            )
        row["path"] = str(file.parent / row["path"])
    missing = [row["path"] for row in rows if not Path(row["path"]).is_file()]
    if missing and (on_missing == "raise" or len(missing) == len(rows)):
        raise FileNotFoundError(
            f"Every image that {file.name} names must exist. Received: "
            f"{len(missing):,} of {len(rows):,} missing, first {missing[:3]}."
        )
    return _decided(rows, file.parent, decisions)


def names_below(paths: Sequence[str | Path], root: str | Path) -> list[str]:
    """Names files by their path below a folder, `"cat/1.jpg"`.

    Where one lies outside, all are named below the folder that they share.
    """
    places = [Path(os.path.abspath(path)) for path in paths]
    root = os.path.abspath(root)
    if not all(place.is_relative_to(root) for place in places):
        root = os.path.commonpath([place.parent for place in places])
    return [place.relative_to(root).as_posix() for place in places]


def unread_files(others: Sequence[Path], total: int, root: Path) -> str:
    """Returns a sentence that counts and names files that are not read."""
    names = [file.relative_to(root).as_posix() for file in others]
    named = ", ".join(names[:5] + ["..."] * (len(names) > 5))
    kinds = ", ".join(ending[1:].upper() for ending in IMAGE_ENDINGS)
    count = f"{len(others):,} of {total:,} files in {root}"
    return f"{count} are no {kinds}: {named}."


def _decided(rows, root, decisions):
    if decisions is None:
        return rows

    def refuse(expectation, received):
        raise ValueError(
            f"{decisions} must have {expectation}. Received: {received}."
        )

    places = defaultdict(list)
    for place, row in enumerate(rows):
        places[os.path.abspath(row["path"])].append(place)
    left = dict(enumerate(rows))
    classes = {row["label"] for row in rows}
    given = _table(decisions, ("path", "decision", "label"), "decisions")
    names = [os.path.abspath(Path(root) / row["path"]) for row in given]
    if unknown := [name for name in names if name not in places]:
        some = f"{len(unknown):,} of {len(names):,} paths of images"
        refuse("known images", f"{some} that are not there: {unknown[:5]}")
    counts = Counter(names)
    for name, row in zip(names, given, strict=True):
        decision, label = row["decision"], row["label"]
        if counts[name] > 1:
            refuse("one decision for an image", f"two for {name}")
        if decision not in DECISIONS:
            refuse(f"one of {', '.join(DECISIONS)}", decision)
        place, *others = places[name]
        if others:
            refuse("images of one row", f"{1 + len(others)} rows of {name}")
        if decision == "drop":
            del left[place]
        elif decision == "relabel":
            if label not in classes:
                refuse("a class of the images to relabel with", label)
            left[place] = left[place] | {"label": label}
    if not left:
        refuse("an image to keep", f"{len(rows)} dropped")
    return list(left.values())


def _table(path, columns, name):
    file = Path(path).expanduser()
    if not file.is_file():
        raise FileNotFoundError(
            f"`{name}` must be a CSV file. Received: {name}={str(path)!r}, "
            "which is no file."
        )
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.DictReader(lines)
            found = [_plain(name) for name in reader.fieldnames or []]
            reader.fieldnames = found
            rows = list(reader)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{file} must be text in UTF-8. Received: {error.reason} at byte "
            f'{error.start}. Spreadsheets save it as "CSV UTF-8".'
        ) from error
    if not set(columns) <= set(found):
        words = f"{', '.join(columns[:-1])} and {columns[-1]}"
        raise ValueError(
            f"{file} must have the columns {words}. Received: columns {found}."
        )
    return rows


def _plain(name):
    """A column's name, without spaces and capitals if it is known."""
    plain = name.strip()
    known = "path", "label", "decision", *BOX
    return plain.lower() if plain.lower() in known else plain


def _image_set(rows, images_per_class):
    names, labels = np.unique([r["label"] for r in rows], return_inverse=True)
    paths = [row["path"] for row in rows]
    whole = ImageSet(labels, tuple(names), paths=paths, boxes=_boxes(rows))
    return whole.of_each_class(images_per_class)


def _boxes(rows):
    given = [name for name in BOX if name in rows[0]]
    if {"left", "xmin", "bbox"} & {str(name).lower() for name in rows[0]}:
        warnings.warn(
            f"Boxes are columns {', '.join(BOX)}. Received: {[*rows[0]]}.",
            stacklevel=4,
        )
    # Width and height alone are sizes of images.
    if not {"x", "y"} & {*given}:
        return None
    try:
        boxes = [[float(row[name]) for name in BOX] for row in rows]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"Every row must have a number in the columns {', '.join(BOX)}. "
            f"Received: columns {', '.join(given)}; {error}."
        ) from error
    return np.array(boxes)


def _is_visible(file, root):
    parts = file.relative_to(root).parts
    return file.is_file() and not any(part.startswith(".") for part in parts)
