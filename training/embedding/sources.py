"""List a folder, a CSV file or a Parquet file of images, in shards.

A shard is a plain dict that another process, or another machine that sees the
same files, can read.
"""

import csv
import hashlib
import json
import os
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from keras_gsp.data.decoding import IMAGE_ENDINGS
from keras_gsp.data.image_folder import (
    images_among,
    names_below,
    unread_files,
)

PICTURE_COLUMNS = "image", "image_bytes", "bytes"
Row = tuple[str, str, bytes | None, str | None]


def shards_of(images: Path, shard_size: int) -> list[dict[str, Any]]:
    """Lists a collection in shards, in an order that only its content decides.

    `images` is a folder (an image's label is the first folder below it, its id
    its path); a CSV file with the column path, relative to the file's folder,
    and perhaps label and id; or a Parquet file with path or image (bytes, or a
    struct with bytes), and perhaps label and id. Returns dicts of JSON values,
    each with its number of images, at most `shard_size`, as `"rows"`. Raises
    `FileNotFoundError` without an image, `ValueError` for missing columns or
    an id given twice.
    """
    images = Path(images)
    if images.is_dir():
        rows = _rows_of_folder(images)
    elif not images.is_file():
        raise FileNotFoundError(
            "`images` must be a folder, a CSV file or a Parquet file. "
            f"Received: {images}, which does not exist."
        )
    elif images.suffix.lower() == ".parquet":
        return _parquet_shards(images, shard_size)
    else:
        rows = _rows_of_csv(images)
    if not rows:
        raise FileNotFoundError(
            f"`images` must hold images. Received: {images}, which has none "
            f"that ends in {', '.join(IMAGE_ENDINGS)}."
        )
    _check_ids([id_ for id_, _, _ in rows], images)
    starts = range(0, len(rows), shard_size)
    blocks = [rows[start : start + shard_size] for start in starts]
    return [{"rows": len(block), "files": block} for block in blocks]


def read_shard(shard: dict[str, Any]) -> list[Row]:
    """Returns id, label, content and error of each image of a shard.

    The error is None, or the content is.
    """
    if "files" in shard:
        return [
            (id_, label, *_content(path)) for id_, label, path in shard["files"]
        ]
    import pyarrow.parquet as pq

    file = pq.ParquetFile(shard["parquet"])
    table = file.read_row_group(shard["group"], columns=shard["columns"])
    table = table.slice(shard["start"], shard["rows"])
    found = []
    folder = Path(shard["parquet"]).parent
    for position, row in enumerate(table.to_pylist()):
        id_ = row.get("id", row.get("path"))
        if "ids" in shard:
            id_ = shard["ids"][position]
        if id_ is None:
            id_ = shard["first"] + position
        label = row.get("label")
        content = next((row[n] for n in PICTURE_COLUMNS if n in row), None)
        if isinstance(content, dict):
            content = content.get("bytes")
        problem = None
        if content is None and row.get("path"):
            content, problem = _content(str(folder / row["path"]))
        elif content is None:
            problem = "unreadable: no content"
        name = "" if label is None else str(label)
        found.append((str(id_), name, content, problem))
    return found


def fingerprint(shards: list[dict[str, Any]]) -> str:
    """Returns a hash of the list of images."""
    digest = hashlib.sha256()
    for shard in shards:
        digest.update(json.dumps(shard, sort_keys=True).encode())
    return digest.hexdigest()


def _content(path):
    try:
        return Path(path).read_bytes(), None
    except OSError as error:
        return None, f"unreadable: {error.strerror or type(error).__name__}"


def _rows_of_folder(folder):
    files = []
    for where, folders, names in os.walk(folder):
        folders.sort()
        files += [Path(where) / name for name in sorted(names)]
    files = [file for file in files if not file.name.startswith(".")]
    images, others = images_among(files)
    if others:
        warnings.warn(unread_files(others, len(files), folder), stacklevel=3)
    rows = []
    for path in images:
        inner = path.relative_to(folder)
        label = inner.parts[0] if len(inner.parts) > 1 else ""
        rows.append([inner.as_posix(), label, str(path.resolve())])
    return rows


def _rows_of_csv(path):
    with path.open(newline="", encoding="utf-8-sig") as lines:
        rows = list(csv.DictReader(lines))
    if rows and "path" not in rows[0]:
        raise ValueError(
            f"{path} must have the column path. "
            f"Received: columns {sorted(map(str, rows[0]))}."
        )
    folder = path.parent.resolve()
    names = _ids_of([row["path"] for row in rows], folder)
    return [
        [
            row.get("id") or name,
            row.get("label") or "",
            str(folder / row["path"]),
        ]
        for name, row in zip(names, rows, strict=True)
    ]


def _ids_of(paths, folder):
    """Paths as they are written, but absolute ones below a shared folder."""
    if not any(map(os.path.isabs, paths)):
        return paths
    return names_below([folder / path for path in paths], folder)


def _parquet_shards(path, shard_size):
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    names = file.schema_arrow.names
    pictures = [name for name in PICTURE_COLUMNS if name in names]
    if not pictures and "path" not in names:
        raise ValueError(
            f"{path} must have a column path, or one of {PICTURE_COLUMNS}. "
            f"Received: columns {names}."
        )
    others = [name for name in ("id", "path", "label") if name in names]
    given: list[str] = []
    key = next((name for name in ("id", "path") if name in names), None)
    if key is not None:
        column = pq.read_table(path, columns=[key])[key]
        ids = [str(id_) for id_ in column.to_pylist()]
        _check_ids(ids, path)
        if key == "path" and any(map(os.path.isabs, ids)):
            given = _ids_of(ids, path.parent.resolve())
    columns = [*others, *pictures[:1]]
    table = {"parquet": str(path.resolve()), "columns": columns}
    shards, first = [], 0
    for group in range(file.num_row_groups):
        count = file.metadata.row_group(group).num_rows
        for start in range(0, count, shard_size):
            rows = min(shard_size, count - start)
            place: dict[str, Any] = {
                "group": group,
                "start": start,
                "first": first,
            }
            if given:
                place["ids"] = given[first : first + rows]
            shards.append({"rows": rows, **table, **place})
            first += rows
    if not shards:
        raise FileNotFoundError(
            f"`images` must hold images. Received: {path}, without a row."
        )
    return shards


def _check_ids(ids, source):
    (often, count), *_ = Counter(ids).most_common(1) or [("", 1)]
    if count > 1:
        raise ValueError(
            f"Ids of {source} must all be different. Received: {often!r} twice."
        )
