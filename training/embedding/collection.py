"""A folder of embeddings in Parquet: shards of rows, and a manifest.

A row has the id, label, version, embedding and status of an image. The manifest
names the shards that count; it is written last, so that readers see the rows
before a change or after it.
"""

import csv
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from training.runs.run_directory import write_json

PLAN, MANIFEST = "plan.json", "manifest.json"
OK = "ok"  # status of an image with an embedding
Row = dict[str, str]
"""`id`, `label`, `path` and `version` of an image."""


def listed(images: Path) -> list[Row]:
    """Returns the images of a folder, or of a CSV file.

    The id is the path below the folder, the label the names of the folders in
    between. A list has the column path, relative to its own folder, and perhaps
    label and id. The version is size and time of the file, "" without one.
    Raises `FileNotFoundError` without an image, `ValueError` for a missing
    column or an id given twice.
    """
    # The package imports Keras: not for --help.
    import keras_gsp as gsp
    from keras_gsp.data.listed_files import names_below

    if images.suffix == ".csv":
        sources, folder = _csv_rows(images), images.parent
    else:
        found, folder = gsp.data.image_folder(images), images
        # Images beside the class folders have no label.
        labels = ["" if name == "." else str(name) for name in found.names]
        pairs = zip(found.paths, labels, strict=True)
        sources = [{"path": path, "label": label} for path, label in pairs]
    # Ids do not tell where the images are kept.
    names = names_below([row["path"] for row in sources], folder)
    rows = []
    for row, name in zip(sources, names, strict=True):
        path, label = Path(row["path"]).resolve(), row.get("label") or ""
        row = {"id": row.get("id") or name, "label": label, "path": str(path)}
        rows.append(row | {"version": _version(path, label)})
    (often, count), *_ = Counter(row["id"] for row in rows).most_common(1)
    if count > 1:
        raise ValueError(
            f"Ids of {images} must all be different. Received: {often!r} twice."
        )
    return rows


class Collection:
    """The shards in a folder, which is made, or has the same plan.

    `plan` is all that decides the rows of an image, JSON values.
    """

    def __init__(self, folder: Path, plan: dict[str, Any]) -> None:
        self.folder, path = folder, folder / PLAN
        if path.is_file():
            old = json.loads(path.read_text())
            changed = sorted(k for k in plan if old.get(k) != plan[k])
            if changed:
                raise ValueError(
                    "`output` must be new, or hold embeddings of the same "
                    f"encoder. Received: {self.folder}, made with another "
                    f"{', '.join(changed)}."
                )
        elif self.folder.exists() and any(self.folder.iterdir()):
            raise FileExistsError(
                "`output` must be new, empty, or a collection. Received: "
                f"{self.folder}, which holds other files."
            )
        else:
            write_json(path, plan)
        for partial in self.folder.glob(".shard-*.partial"):
            partial.unlink(missing_ok=True)

    def changes(self, rows: list[Row]) -> tuple[Any, list[Row]]:
        """Compares images with what is embedded of them.

        Returns the package's `FolderChanges`, and the rows to embed: new ones,
        changed ones, and those that failed before.
        """
        from keras_gsp.retrieval.folder_changes import folder_changes

        known = {
            id_: version
            for shard in self._shards()
            for id_, version, status in zip(*self._facts(shard), strict=True)
            if status == OK
        }
        present = {row["id"]: row["version"] for row in rows}
        changes = folder_changes(known, present)
        wanted = {*changes.added, *changes.changed}
        return changes, [row for row in rows if row["id"] in wanted]

    def next_number(self) -> int:
        """Returns the first number without a shard."""
        numbers = [int(path.stem[6:]) for path in self._shards()]
        return max(numbers, default=-1) + 1

    def finish(self, rows: list[Row]) -> dict[str, Any]:
        """Drops what no longer counts, and writes the manifest.

        A shard with images that are gone, or embedded again, is written anew
        without them. The manifest has `num_images`, `statuses` with their
        counts and `shards`, each with `file` and `rows`.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        versions = {row["id"]: row["version"] for row in rows}
        shards: list[dict[str, Any]] = []
        statuses, seen = Counter[str](), set[str]()
        number = self.next_number()
        # Rows of later shards replace those of earlier ones.
        for shard in reversed(self._shards()):
            ids, found, status = self._facts(shard)
            counts = np.array(
                [
                    versions.get(id_) == version and id_ not in seen
                    for id_, version in zip(ids, found, strict=True)
                ]
            )
            seen.update(ids)
            if not counts.any():
                continue
            if not counts.all():
                table = pq.read_table(shard).filter(pa.array(counts))
                shard = self.folder / shard_name(number)
                number += 1
                _write(table, shard)
            statuses.update(np.array(status, object)[counts].tolist())
            count = int(counts.sum())
            shards.insert(0, {"file": shard.name, "rows": count})
        manifest = {
            "num_images": sum(shard["rows"] for shard in shards),
            "statuses": dict(sorted(statuses.items())),
            "shards": shards,
        }
        write_json(self.folder / MANIFEST, manifest)
        named = {shard["file"] for shard in shards}
        for shard in self._shards():
            if shard.name not in named:
                shard.unlink()
        return manifest

    def _shards(self):
        return sorted(self.folder.glob("shard-??????.parquet"))

    def _facts(self, shard):
        import pyarrow.parquet as pq

        names = ["id", "version", "status"]
        table = pq.read_table(shard, columns=names)
        return [table[name].to_pylist() for name in names]


def shard_name(number: int) -> str:
    """Returns the file name of a shard."""
    return f"shard-{number:06d}.parquet"


def write_shard(
    path: Path, rows: list[Row], embeddings: np.ndarray, status: list[str]
) -> None:
    """Writes a shard, whole or not at all; failed images have no embedding."""
    import pyarrow as pa

    is_ok = np.array([word == OK for word in status])
    vectors = pa.FixedSizeListArray.from_arrays(
        pa.array(np.where(is_ok[:, None], embeddings, 0).reshape(-1)),
        embeddings.shape[1],
        mask=pa.array(~is_ok),
    )
    texts = {
        name: pa.array([row[name] for row in rows], pa.string())
        for name in ("id", "label", "version")
    }
    columns = {"embedding": vectors, "status": pa.array(status, pa.string())}
    _write(pa.table(texts | columns), path)


def read_embeddings(
    output: str | Path,
) -> Iterator[tuple[np.ndarray, list[str], list[str]]]:
    """Yields the embeddings of a finished collection, shard by shard.

    `(images, size)`, float32, with labels and ids, as an index takes them.
    Images that could not be read are left out. Raises `FileNotFoundError`
    without a finished collection in `output`.
    """
    import pyarrow.parquet as pq

    path = Path(output) / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(
            "`output` must be a finished collection. Received: "
            f"{output}, without {MANIFEST}; run the same command again."
        )
    for shard in json.loads(path.read_text())["shards"]:
        file = path.with_name(shard["file"])
        table = pq.read_table(file, filters=[("status", "==", OK)])
        if len(table):
            values = table["embedding"].combine_chunks().flatten().to_numpy()
            yield (
                values.reshape(len(table), -1),
                table["label"].to_pylist(),
                table["id"].to_pylist(),
            )


def _version(path, label):
    """Size and time of a file, and the label; "" without a file."""
    try:
        status = os.stat(path)
    except OSError:
        return ""
    return f"{status.st_size} {status.st_mtime_ns} {label}"


def _csv_rows(file):
    with file.open(newline="", encoding="utf-8-sig") as lines:
        rows = list(csv.DictReader(lines))
    if not rows or not rows[0].get("path"):
        raise ValueError(
            f"`images` must be a list with the column path. Received: {file}, "
            f"with {', '.join(rows[0]) if rows else 'no row'}."
        )
    return [row | {"path": str(file.parent / row["path"])} for row in rows]


def _write(table, path):
    import pyarrow.parquet as pq

    from keras_gsp.storage.whole import whole_file

    with whole_file(path) as aside:
        pq.write_table(table, aside)
