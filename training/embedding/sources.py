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
    images = Path(images)
    if not images.exists():
        raise FileNotFoundError(
            "`images` must be a folder or a CSV file. Received: "
            f"{images}, which does not exist."
        )
    rows = (_of_folder if images.is_dir() else _of_csv)(images)
    if not rows:
        raise FileNotFoundError(
            f"`images` must hold images. Received: {images}, without a row."
        )
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


def _of_folder(folder):
    import keras_gsp as gsp
    from keras_gsp.data.image_folder import names_below

    found = gsp.data.image_folder(folder)
    ids = names_below(found.paths, folder)
    # Images beside the class folders have no label.
    labels = ["" if name == "." else str(name) for name in found.names]
    paths = [str(Path(path).resolve()) for path in found.paths]
    return [
        {"id": id_, "label": label, "path": path}
        for id_, label, path in zip(ids, labels, paths, strict=True)
    ]


def _of_csv(file):
    from keras_gsp.data.image_folder import names_below

    with file.open(newline="", encoding="utf-8-sig") as lines:
        table = csv.DictReader(lines)
        if "path" not in (table.fieldnames or []):
            raise ValueError(
                f"{file} must have the column path. Received: columns "
                f"{', '.join(table.fieldnames or [])}."
            )
        rows = list(table)
    folder = file.parent.resolve()
    names = [row["path"] for row in rows]
    if any(Path(name).is_absolute() for name in names):
        # Ids do not tell where the images are kept.
        names = names_below([folder / name for name in names], folder)
    return [
        {
            "id": row.get("id") or name,
            "label": row.get("label") or "",
            "path": str(folder / row["path"]),
        }
        for row, name in zip(rows, names, strict=True)
    ]
