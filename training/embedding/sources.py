"""List the images of a folder, a CSV file or a Parquet file, and read them.

A row is a plain dict that another process, or another machine that sees the
same files, can read.
"""

import csv
import functools
import os
from collections import Counter
from pathlib import Path
from typing import Any

PICTURE_COLUMNS = "image", "image_bytes", "bytes"
Row = dict[str, Any]


def listed(images: Path) -> list[Row]:
    """Returns the id, the label and the place of each image.

    `images` is a folder, as `gsp.data.image_folder` reads it (the id is the
    path below it); a CSV file with the column path, relative to the file's
    folder, and perhaps label and id; or a Parquet file with path or image
    (bytes, or a struct with bytes), and perhaps label and id. Raises
    `FileNotFoundError` without an image, `ValueError` for missing columns or
    an id given twice.
    """
    images = Path(images)
    if not images.exists():
        raise FileNotFoundError(
            "`images` must be a folder, a CSV file or a Parquet file. "
            f"Received: {images}, which does not exist."
        )
    if images.is_dir():
        rows = _rows_of_folder(images)
    else:
        is_table = images.suffix.lower() == ".parquet"
        facts = _parquet_facts(images) if is_table else _csv_facts(images)
        rows = _rows_of_list(facts, images.parent.resolve())
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
    found = None
    if "table" in row:
        table = _pictures(row["table"], row["group"], row["column"])
        found = table[row["position"]].as_py()
        found = found.get("bytes") if isinstance(found, dict) else found
    if found is not None:
        return found, None
    if row["path"] is None:
        return b"", "unreadable: no content"
    try:
        return Path(row["path"]).read_bytes(), None
    except OSError as error:
        return b"", f"unreadable: {error.strerror or type(error).__name__}"


@functools.lru_cache(maxsize=1)
def _pictures(table, group, column):
    import pyarrow.parquet as pq

    return pq.ParquetFile(table).read_row_group(group, [column])[column]


def _rows_of_folder(folder):
    import keras_gsp as gsp
    from keras_gsp.data.image_folder import names_below

    found = gsp.data.image_folder(folder)
    # Images beside the class folders have no label.
    labels = ["" if name == "." else str(name) for name in found.names]
    paths = [str(Path(path).resolve()) for path in found.paths]
    return [
        {"id": id_, "label": label, "path": path}
        for id_, label, path in zip(
            names_below(found.paths, folder), labels, paths, strict=True
        )
    ]


def _csv_facts(path):
    with path.open(newline="", encoding="utf-8-sig") as lines:
        rows = csv.DictReader(lines)
        _check_columns(path, rows.fieldnames or [], ["path"])
        return list(rows)


def _parquet_facts(path):
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    names = file.schema_arrow.names
    _check_columns(path, names, ["path", *PICTURE_COLUMNS])
    columns = [name for name in ("id", "path", "label") if name in names]
    place: Row = {}
    for column in set(PICTURE_COLUMNS) & set(names):
        place = {"table": str(path.resolve()), "column": column}
    facts = []
    for group in range(file.num_row_groups):
        count = file.metadata.row_group(group).num_rows
        some: Any = [{}] * count
        if columns:
            some = file.read_row_group(group, columns).to_pylist()
        if place:
            place["group"] = group
            some = [one | place | {"position": i} for i, one in enumerate(some)]
        facts += some
    return facts


def _check_columns(path, names, wanted):
    if not set(names) & set(wanted):
        raise ValueError(
            f"{path} must have the column {' or '.join(wanted)}. "
            f"Received: columns {sorted(map(str, names))}."
        )


def _rows_of_list(facts, folder):
    from keras_gsp.data.image_folder import names_below

    paths = [one["path"] for one in facts if one.get("path")]
    names = paths
    if any(map(os.path.isabs, paths)):
        # Ids do not tell where the images are kept.
        names = names_below([folder / path for path in paths], folder)
    name_of = dict(zip(paths, names, strict=True))
    rows = []
    for number, one in enumerate(facts):
        path = one.get("path") or None
        known = (one.get("id"), name_of.get(path), number)
        row = {
            "id": str(next(id_ for id_ in known if id_ not in (None, ""))),
            "label": "" if one.get("label") is None else str(one["label"]),
            "path": None if path is None else str(folder / path),
        }
        places = ("table", "column", "group", "position")
        rows.append(row | {key: one[key] for key in places if key in one})
    return rows
