"""Embeds a collection: `python -m training.embed RUN --images FOLDER`.

Images are read, decoded and embedded shard by shard, in this process or in
Ray's workers, into Parquet files of id, label, embedding and status. The same
command continues a stopped one.
"""

import hashlib
import json
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from tqdm import tqdm

from training.embedding.collection import (
    OK,
    begin,
    finish,
    shard_name,
    write_shard,
)
from training.embedding.sources import content, listed
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
    """This process, or Ray."""
    address: str | None = None
    """ray: a cluster, such as auto; by default Ray starts on this machine."""
    workers: Annotated[int, positive] = 1
    """ray: encoders that work at once."""
    cpus: float = 1.0
    """ray: processors of each worker."""
    gpus: float = 0.0
    """ray: GPUs of each worker."""
    shard_size: Annotated[int, positive] = 2048
    """Images of a shard, which is lost when a worker dies."""
    batch_size: Annotated[int, positive] = 64
    """Images embedded at once."""


class ShardWriter:
    """Embeds whole shards with one encoder, a `.keras` file.

    The result depends only on the shard and the encoder: batches never cross
    the end of a shard, and all have the same size.
    """

    def __init__(
        self,
        encoder: str,
        crop_fraction: float | str,
        output: str,
        batch_size: int,
        threads: int | None = None,
    ) -> None:
        import keras
        import tensorflow as tf

        import keras_gsp  # noqa: F401, registers the layers
        from keras_gsp.retrieval.serving.served_encoder import ServedEncoder

        if threads is not None:
            tf.config.threading.set_intra_op_parallelism_threads(threads)
            tf.config.threading.set_inter_op_parallelism_threads(threads)
        model = keras.models.load_model(encoder, compile=False)
        served = ServedEncoder(model, crop_fraction=crop_fraction)
        self.size = served.embedding_size
        self.output, self.batch_size = Path(output), batch_size

        @tf.function(input_signature=[tf.TensorSpec([batch_size], tf.string)])
        def embed(contents):
            images, status = served.decoded(contents)
            return served.embedded(images), status

        self._embed = embed

    def __call__(self, item: dict[str, Any]) -> dict[str, Any]:
        """Writes the shard `number` of `rows`, unless it exists."""
        path, rows = self.output / shard_name(item["number"]), item["rows"]
        if not path.exists():
            write_shard(path, rows, *self._embedded(rows))
        return {"number": item["number"], "count": len(rows)}

    def _embedded(self, rows):
        """Embeddings of rows, (rows, size), and the status of each."""
        embeddings = np.zeros((len(rows), self.size), "float32")
        status = [OK] * len(rows)
        for start in range(0, len(rows), self.batch_size):
            read = [content(row) for row in rows[start:][: self.batch_size]]
            padding = [b""] * (self.batch_size - len(read))
            found, words = self._embed([one for one, _ in read] + padding)
            stop = start + len(read)
            embeddings[start:stop] = found.numpy()[: len(read)]
            status[start:stop] = [
                problem or word.decode()
                for (_, problem), word in zip(read, words.numpy(), strict=False)
            ]
        # Otherwise a diverged encoder would look like distant neighbors.
        for i in np.flatnonzero(~np.isfinite(embeddings).all(axis=1)):
            if status[i] == OK:
                status[i] = "failed: the embedding is not finite"
        return embeddings, status


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    run_command("embed", __doc__, EmbedCommand, _embed, arguments)


def _embed(command):
    start = time.perf_counter()
    manifest, num_new = embed(command)
    seconds = time.perf_counter() - start
    print(f"{command.output}: {manifest['num_images']} images")
    for status, count in manifest["statuses"].items():
        print(f"{count:>9}  {status}")
    if num_new:
        print(f"{num_new / seconds:.0f} images/s, {num_new} of them new")
    print(
        "Next: training.embedding.collection.read_embeddings"
        f"({str(command.output)!r}) yields them for an index"
    )


def embed(command: EmbedCommand) -> tuple[dict, int]:
    """Embeds the missing shards; returns the manifest and the new images."""
    from training.runs.scoring import encoder_file

    encoder, crop = encoder_file(command.run), _crop_fraction(command.run)
    rows, size = listed(command.images), command.shard_size
    shards = [rows[start : start + size] for start in range(0, len(rows), size)]
    plan = {
        "format": 2,
        "encoder": hashlib.sha256(encoder.read_bytes()).hexdigest(),
        "crop_fraction": crop,
        "images": hashlib.sha256(json.dumps(rows).encode()).hexdigest(),
        "num_shards": len(shards),
        "shard_size": size,
        "batch_size": command.batch_size,
    }
    items: list[dict[str, Any]] = [
        {"number": number, "rows": shards[number]}
        for number in begin(command.output, plan)
    ]
    options: dict[str, Any] = {
        "encoder": str(encoder.resolve()),
        "crop_fraction": crop,
        "output": str(command.output.resolve()),
        "batch_size": command.batch_size,
    }
    written: Any = ()
    if items and command.engine == "ray":
        written = _by_ray(command, items, options)
    elif items:
        written = map(ShardWriter(**options), items)
    num_new = sum(len(item["rows"]) for item in items)
    with tqdm(total=num_new, unit="image") as bar:
        for done in written:
            bar.update(done["count"])
    return finish(command.output, plan), num_new


def _crop_fraction(run):
    """Returns the side of the embedded square over the shorter side."""
    from training.runs.scoring import load_preprocessing

    if run.suffix == ".keras":
        return "auto"  # as the file says
    expected = load_preprocessing(run)
    return 1.0 if expected is None else expected.crop_fraction


def _by_ray(command, items, options):
    """Embeds shards in Ray's workers, in any order; Ray replaces dead ones."""
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise ImportError(
            "`engine` ray needs Ray: pip install 'keras-gsp[ray]'; the local "
            f"engine works without it. Received: {error}."
        ) from error
    _start(ray, command)
    try:
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        # An unreadable image is a status; a shard that fails ends the run.
        context.max_errored_blocks = 0
        options = options | {"threads": max(1, int(command.cpus))}
        yield from (
            ray.data.from_items(items, override_num_blocks=len(items))
            .map(
                ShardWriter,  # type: ignore[arg-type]
                fn_constructor_kwargs=options,
                compute=ray.data.ActorPoolStrategy(size=command.workers),
                num_cpus=command.cpus,
                num_gpus=command.gpus or None,
            )
            .iter_rows()
        )
    finally:
        ray.shutdown()


def _start(ray, command):
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    settings: dict[str, Any] = {"address": command.address}
    if command.address is None:
        settings = {
            "num_cpus": 1 + int(np.ceil(command.workers * command.cpus)),
            "include_dashboard": False,
            "runtime_env": {"env_vars": {"PYTHONPATH": os.getcwd()}},
        }
    try:
        # Ray would try to connect for five minutes.
        address = (command.address or "").removeprefix("ray://")
        host, _, port = address.rpartition(":")
        if host and port.isdigit():
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(log_to_driver=False, logging_level="error", **settings)
    except (OSError, RuntimeError, ValueError) as error:
        raise ConnectionError(
            "`address` must be a Ray cluster that answers. To start one: "
            f"ray start --head. Received: {command.address}: {error}."
        ) from error


if __name__ == "__main__":
    main()
