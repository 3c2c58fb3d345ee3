"""Embeds a collection: `python -m training.embed RUN --images FOLDER`.

Images are read, decoded and embedded shard by shard, in this process or in
Ray's workers, into Parquet files of id, label, version, embedding and status.
The same command continues a stopped one, and embeds what is new: files that
were added, replaced or repaired, and those that failed.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from tqdm import tqdm

from training.embedding.collection import (
    Collection,
    listed,
    shard_name,
    write_shard,
)
from training.recipes.settings import positive
from training.runs.command_line import run_command


@dataclass(frozen=True)
class EmbedCommand:
    """Writes the embeddings of a collection of images."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run directory, or the file of an encoder that ends in .keras."""
    images: Path
    """A folder, or a CSV file with the column path, and perhaps label and
    id."""
    output: Path = Path("embeddings")
    """Folder to write."""
    engine: Literal["local", "ray"] = "local"
    """This process, or Ray: a running cluster, else one on this machine."""
    address: str | None = None
    """ray: the address of a cluster."""
    workers: Annotated[int, positive] = 1
    """ray: encoders that work at once, on one processor each."""
    gpus: float = 0.0
    """ray: GPUs of each worker."""
    shard_size: Annotated[int, positive] = 2048
    """Images of a shard, which is lost when a worker dies."""


class ShardWriter:
    """Embeds whole shards with an encoder, a `.keras` file, on any backend."""

    def __init__(self, encoder: str, output: str) -> None:
        import keras

        from keras_gsp.retrieval.serving.served_encoder import ServedEncoder

        model = keras.saving.load_model(encoder, compile=False)
        self.served = ServedEncoder(model)
        self.output = Path(output)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Writes the shards `number` of `rows`, JSON, unless they exist."""
        counts = []
        for number, content in zip(batch["number"], batch["rows"], strict=True):
            rows = json.loads(str(content))
            path = self.output / shard_name(int(number))
            if not path.exists():
                files = [Path(row["path"]) for row in rows]
                write_shard(path, rows, *self.served.embed(files))
            counts.append(len(rows))
        return {"count": np.array(counts)}


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    run_command("embed", __doc__, EmbedCommand, _embed, arguments)


def _embed(command):
    from training.runs.scoring import encoder_file, load_preprocessing

    encoder = encoder_file(command.run)
    rows = listed(command.images)
    plan = {
        "format": 3,
        "encoder": hashlib.sha256(encoder.read_bytes()).hexdigest(),
        # That of the run agrees, or an error.
        "preprocessing": repr(load_preprocessing(command.run)),
    }
    from keras_gsp.storage.one_process import one_process

    start = time.perf_counter()
    # Beside the folder, which must hold nothing else.
    with one_process(command.output):
        collection = Collection(command.output, plan)
        changes, missing = collection.changes(rows)
        first, size = collection.next_number(), command.shard_size
        items = [
            {"number": first + i, "rows": json.dumps(missing[j : j + size])}
            for i, j in enumerate(range(0, len(missing), size))
        ]
        options = str(encoder.resolve()), str(command.output.resolve())
        embed = _by_ray if command.engine == "ray" else _here
        with tqdm(total=len(missing), unit="image", desc="embed") as bar:
            for count in embed(command, items, options) if items else ():
                bar.update(count)
        statuses = collection.finish(rows)["statuses"]
    print(f"{command.output}: {changes}")
    for status, count in statuses.items():
        print(f"{count:>9}  {status}")
    if missing:
        seconds = time.perf_counter() - start
        print(f"{len(missing) / seconds:.0f} images/s")
    print(
        "Next: training.embedding.collection.read_embeddings"
        f"({str(command.output)!r}) yields them for an index"
    )


def _here(command, items, options) -> Iterator[int]:
    write = ShardWriter(*options)
    for item in items:
        yield write({k: [v] for k, v in item.items()})["count"][0]


def _by_ray(command, items, options) -> Iterator[int]:
    """Embeds shards in Ray's workers, in any order; Ray replaces dead ones."""
    import ray
    import ray.data

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # A worker has one processor.
    threads = "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"
    variables = dict.fromkeys(threads, "1") | {"PYTHONPATH": os.getcwd()}
    common: dict[str, Any] = {
        **{"log_to_driver": False, "logging_level": "error"},
        "runtime_env": {"env_vars": variables},
    }
    try:
        # A running cluster has its own number of processors.
        ray.init(command.address or "auto", **common)
    except ConnectionError:
        if command.address is not None:
            raise
        ray.init(
            num_cpus=1 + command.workers, include_dashboard=False, **common
        )
    try:
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        # An unreadable image is a status; a shard that fails ends the run.
        context.max_errored_blocks = 0
        shards = ray.data.from_items(items, override_num_blocks=len(items))
        written = shards.map_batches(
            ShardWriter,
            fn_constructor_args=options,
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=command.workers),
            num_cpus=1,
            num_gpus=command.gpus or None,
        )
        for row in written.iter_rows():
            yield row["count"]
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
