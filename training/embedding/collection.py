"""A folder of embeddings in Parquet: a plan, shards, and a manifest."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

PLAN, MANIFEST = "plan.json", "manifest.json"
OK = "ok"  # status of an image with an embedding


def shard_name(number: int) -> str:
    """Returns the file name of a shard."""
    return f"shard-{number:06d}.parquet"


def begin(output: Path, plan: dict[str, Any]) -> list[int]:
    """Starts or continues a collection; returns the missing shards' numbers.

    `plan` is all that decides the content, JSON values, with `num_shards`.
    """
    path = output / PLAN
    if path.is_file():
        old = json.loads(path.read_text())
        changed = sorted(k for k in plan if old.get(k) != plan[k])
        if changed:
            raise ValueError(
                "`output` must be new, or hold a part of the same embeddings. "
                f"Received: {output}, made with another {', '.join(changed)}."
            )
    elif output.exists() and any(output.iterdir()):
        raise FileExistsError(
            "`output` must be new, empty, or an unfinished collection. "
            f"Received: {output}, which holds other files."
        )
    else:
        _write_json(path, plan)
    for partial in output.glob(".*.partial"):
        partial.unlink(missing_ok=True)
    numbers = range(plan["num_shards"])
    return [n for n in numbers if not (output / shard_name(n)).exists()]


def write_shard(
    path: Path, rows: list[dict], embeddings: np.ndarray, status: list[str]
) -> None:
    """Writes id, label, embedding and status, whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from keras_gsp.storage.whole import whole_file

    is_ok = np.array([word == OK for word in status])
    vectors = pa.FixedSizeListArray.from_arrays(
        pa.array(np.where(is_ok[:, None], embeddings, 0).reshape(-1)),
        embeddings.shape[1],
        mask=pa.array(~is_ok),
    )
    columns = {
        "id": pa.array([row["id"] for row in rows], pa.string()),
        "label": pa.array([row["label"] for row in rows], pa.string()),
        "embedding": vectors,
        "status": pa.array(status, pa.string()),
    }
    with whole_file(path) as temporary:
        pq.write_table(pa.table(columns), temporary)


def finish(output: Path, plan: dict[str, Any]) -> dict[str, Any]:
    """Reads all shards and writes the manifest.

    The manifest is the plan with `num_images`, `statuses` with their counts,
    and `shards`, each with `file`, `rows` and `sha256`.
    """
    import pyarrow.parquet as pq

    shards: list[dict[str, Any]] = []
    statuses: Counter[str] = Counter()
    for number in range(plan["num_shards"]):
        path = output / shard_name(number)
        found = pq.read_table(path, columns=["status"])["status"].to_pylist()
        statuses.update(found)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        shards.append({"file": path.name, "rows": len(found), "sha256": digest})
    manifest = plan | {
        "num_images": sum(shard["rows"] for shard in shards),
        "statuses": dict(sorted(statuses.items())),
        "shards": shards,
    }
    _write_json(output / MANIFEST, manifest)
    return manifest


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


def _write_json(path, values):
    # Imported here: the package needs Keras, --help and errors do not.
    from keras_gsp.storage.whole import whole_file

    with whole_file(path) as temporary:
        temporary.write_text(json.dumps(values, indent=2) + "\n")
