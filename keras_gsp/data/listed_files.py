"""Files and labels of a folder with one sub-folder per class, or a CSV list."""

import csv
import os
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unicodedata import normalize

import numpy as np

from keras_gsp.data.archives import is_archive, unpacked
from keras_gsp.data.decoding import IMAGE_ENDINGS, MAX_PIXELS, check_image

Row = dict[str, str]
"""`path` and `label` of an image, and the other columns of its list."""

DECISIONS = "keep", "relabel", "drop"
BOX = "x", "y", "width", "height"


def folder_rows(
    path: str | Path, decisions: str | Path | None = None
) -> list[Row]:
    """Lists the images of a folder; see `image_folder`."""
    root = image_root(path)
    if not root.is_dir():
        raise FileNotFoundError(
            "`path` must be a folder of images, or a zip or tar archive of "
            f"one. Received: path={str(path)!r}, which is neither."
        )
    left_out: list[str] = []
    files = sorted(
        (Path(entry.path) for entry in folder_entries(root, left_out)),
        key=lambda file: (file.parent.as_posix(), file.name),
    )
    images = [f for f in files if f.suffix.lower() in IMAGE_ENDINGS]
    others = [f for f in files if f.suffix.lower() not in IMAGE_ENDINGS]
    formats = ", ".join(ending[1:].upper() for ending in IMAGE_ENDINGS)
    loose = [file for file in images if file.parent == root]
    if len(loose) == len(images):
        loose = []  # A folder without labels.
    for names, fact in (
        (others, f"of {len(files):,} files in {root} are no {formats}"),
        (left_out, "links lead nowhere, or to a folder that is read already"),
        (
            loose,
            f"of {len(images):,} images lie in {root} itself and not in the "
            'folder of a class, their class is "."',
        ),
    ):
        if names:
            first = ", ".join(os.path.relpath(name, root) for name in names[:5])
            more = ", ..." if len(names) > 5 else ""
            message = f"{len(names):,} {fact}: {first}{more}."
            warnings.warn(message, stacklevel=3)
    if not images:
        raise FileNotFoundError(
            f"{path} must hold images ({', '.join(IMAGE_ENDINGS)}), perhaps "
            "in one folder per class. Received: no image at any depth."
        )
    rows = [
        {"path": str(f), "label": _label(f.parent.relative_to(root).as_posix())}
        for f in images
    ]
    return _decided(rows, root, decisions)


def folder_entries(
    root: str | Path, left_out: list[str] | None = None
) -> Iterator[os.DirEntry]:
    """Yields the visible files below a folder, at any depth.

    Each folder once, linked ones too. `left_out` receives links that lead
    nowhere, back, or to a folder that is read under another name.
    """
    seen = {_identity(folder) for folder in Path(root).resolve().parents}
    folders = [os.fspath(root)]
    links: list[str] = []
    while folders or links:
        is_linked = not folders
        folder = links.pop(0) if is_linked else folders.pop()
        if _identity(folder) in seen:
            if left_out is not None:
                left_out.append(folder)
            continue
        seen.add(_identity(folder))
        with os.scandir(folder) as entries:
            visible = [e for e in entries if not e.name.startswith(".")]
        for entry in sorted(visible, key=lambda entry: entry.name):
            if entry.is_dir():
                (links if entry.is_symlink() else folders).append(entry.path)
            elif entry.is_file():
                yield entry
            elif entry.is_symlink() and left_out is not None:
                left_out.append(entry.path)


def image_root(path: str | Path) -> Path:
    """Returns a folder, or the one that an archive is unpacked to."""
    root = Path(path).expanduser()
    return unpacked(root) if is_archive(root) else root


def csv_rows(
    path: str | Path,
    *,
    on_missing: str = "raise",
    decisions: str | Path | None = None,
) -> list[Row]:
    """Reads the checked rows of a list; see `ImageSet.from_csv`."""
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
        row["path"] = _file_of(os.path.normpath(file.parent / row["path"]))
        row["label"] = _label(row["label"])
    rows = _without_doubles(rows, file)
    missing = [row["path"] for row in rows if not Path(row["path"]).is_file()]
    if missing and (on_missing == "raise" or len(missing) == len(rows)):
        raise FileNotFoundError(
            f"Every image that {file.name} names must exist. Received: "
            f"{len(missing):,} of {len(rows):,} missing, first {missing[:3]}."
        )
    return _decided(rows, file.parent, decisions)


def names_below(paths: Sequence[str | Path], root: str | Path) -> list[str]:
    """Names files by their path below a folder, `"cat/1.jpg"`, in NFC.

    Where one lies outside, all are named below the folder that they share.
    """
    files = [Path(os.path.abspath(path)) for path in paths]
    root = os.path.abspath(root)
    if not all(file.is_relative_to(root) for file in files):
        root = os.path.commonpath([file.parent for file in files])
    return [_label(file.relative_to(root).as_posix()) for file in files]


def unreadable(
    paths: Sequence[str], max_pixels: int = MAX_PIXELS
) -> dict[str, str]:
    """Decodes every file; maps those that cannot be used to the reason."""

    def reason(path):
        try:
            check_image(Path(path).read_bytes(), max_pixels)
        except (OSError, ValueError) as error:
            return f"cannot be read ({error})"
        return None

    with ThreadPoolExecutor() as threads:
        reasons = list(threads.map(reason, paths))
    return {p: why for p, why in zip(paths, reasons, strict=True) if why}


def unreadable_text(reasons: dict[str, str], total: int) -> str:
    """Counts unusable files and names the first ten, a line for each."""
    lines = [f"{path}: {reason}" for path, reason in reasons.items()]
    if len(lines) > 10:
        lines[10:] = [f"... and {len(lines) - 10} more"]
    return "\n  ".join([f"{len(reasons)} unusable of {total}:", *lines])


def _without_doubles(rows, file):
    unique: dict = {}
    labels = defaultdict(set)
    for row in rows:
        image = row["path"], *(row.get(name) for name in BOX)
        facts = row["label"], row.get("split")
        unique.setdefault((image, facts), row)
        labels[image].add(facts)
    unclear = [image[0] for image, facts in labels.items() if len(facts) > 1]
    doubled = len(rows) - len(unique)
    for count, fact in (
        (doubled, "rows repeat others and are left out"),
        (len(unclear), f"images have several labels or splits: {unclear[:3]}"),
    ):
        if count:
            warnings.warn(f"{count:,} {fact}, in {file}.", stacklevel=4)
    return list(unique.values())


def _file_of(name):
    """The name as it is, or as the other Unicode form has it on disk."""
    forms = name, *(normalize(form, name) for form in ("NFC", "NFD"))
    return next(filter(os.path.exists, forms), name)


def _identity(folder):
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def _label(name):
    """A name of a class in Unicode's composed form, as users type it."""
    return normalize("NFC", name)


def _decided(rows, root, decisions):
    if decisions is None:
        return rows

    def refuse(expectation, received):
        raise ValueError(
            f"{decisions} must have {expectation}. Received: {received}."
        )

    positions = defaultdict(list)
    for position, row in enumerate(rows):
        positions[_label(os.path.abspath(row["path"]))].append(position)
    left = dict(enumerate(rows))
    classes = {row["label"] for row in rows}
    table = _table(decisions, ("path", "decision", "label"), "decisions")
    files = [_label(os.path.abspath(Path(root) / r["path"])) for r in table]
    if unknown := [file for file in files if file not in positions]:
        count = f"{len(unknown):,} of {len(files):,} paths of images"
        refuse("known images", f"{count} that are not there: {unknown[:5]}")
    counts = Counter(files)
    for file, row in zip(files, table, strict=True):
        decision, label = row["decision"], _label(row["label"])
        if counts[file] > 1:
            refuse("one decision for an image", f"two for {file}")
        if decision not in DECISIONS:
            refuse(f"one of {', '.join(DECISIONS)}", decision)
        position, *others = positions[file]
        if others:
            refuse("images of one row", f"{1 + len(others)} rows of {file}")
        if decision == "drop":
            del left[position]
        elif decision == "relabel":
            if label not in classes:
                refuse("a class of the images to relabel with", label)
            left[position] = left[position] | {"label": label}
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


def boxes_of(rows: Sequence[Row]) -> np.ndarray | None:
    """Returns the boxes of rows (images, 4), if the list has them."""
    columns = [name for name in BOX if name in rows[0]]
    if {"left", "xmin", "bbox"} & {str(name).lower() for name in rows[0]}:
        warnings.warn(
            f"Boxes are columns {', '.join(BOX)}. Received: {[*rows[0]]}.",
            stacklevel=4,
        )
    # Width and height alone are sizes of images.
    if not {"x", "y"} & {*columns}:
        return None
    try:
        boxes = [[float(row[name]) for name in BOX] for row in rows]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"Every row must have a number in the columns {', '.join(BOX)}. "
            f"Received: columns {', '.join(columns)}; {error}."
        ) from error
    return np.array(boxes)
