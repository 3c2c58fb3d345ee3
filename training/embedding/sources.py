"""List the images of a folder or a CSV file, and read them."""

import csv
from collections import Counter
from pathlib import Path

Row = dict[str, str]
"""`id`, `label` and `path` of an image."""


def listed(images: Path) -> list[Row]:
    """Returns id, label and path of each image.

    `images` is a folder, as `gsp.data.image_folder` reads it (the id is the
    path below it), or a CSV file with the column path, relative to the file's
    folder, and perhaps label and id. Raises `FileNotFoundError` without an
    image, `ValueError` for a missing column or an id given twice.
    """
    # The package imports Keras: not for --help.
    import keras_gsp as gsp
    from keras_gsp.data.listed_files import names_below

    if images.suffix == ".csv":
        rows = _csv_rows(images)
    else:
        found = gsp.data.image_folder(images)
        # Images beside the class folders have no label.
        labels = ["" if name == "." else str(name) for name in found.names]
        rows = [
            {"path": path, "label": label}
            for path, label in zip(found.paths, labels, strict=True)
        ]
    folder = images.parent if images.suffix == ".csv" else images
    # Ids do not tell where the images are kept.
    names = names_below([row["path"] for row in rows], folder)
    rows = [
        {
            "id": row.get("id") or name,
            "label": row.get("label") or "",
            "path": str(Path(row["path"]).resolve()),
        }
        for row, name in zip(rows, names, strict=True)
    ]
    (often, count), *_ = Counter(row["id"] for row in rows).most_common(1)
    if count > 1:
        raise ValueError(
            f"Ids of {images} must all be different. Received: {often!r} twice."
        )
    return rows


def content(row: Row) -> tuple[bytes, str | None]:
    """Returns the bytes of an image, and why they could not be read or None."""
    try:
        return Path(row["path"]).read_bytes(), None
    except OSError as error:
        return b"", f"unreadable: {error.strerror or type(error).__name__}"


def _csv_rows(file):
    with file.open(newline="", encoding="utf-8-sig") as lines:
        rows = list(csv.DictReader(lines))
    if not rows or not rows[0].get("path"):
        raise ValueError(
            f"`images` must be a list with the column path. Received: {file}, "
            f"with {', '.join(rows[0]) if rows else 'no row'}."
        )
    return [row | {"path": str(file.parent / row["path"])} for row in rows]
