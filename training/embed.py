"""Embeds a collection: `python -m training.embed RUN --images FOLDER`.

Images are read, decoded and embedded shard by shard, in this process or in
Ray's workers, into Parquet files of id, label, embedding and status. The same
command continues a stopped one.
"""

import hashlib
import json
import os
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
    """ray: encoders that work at once, on one processor each."""
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
    ) -> None:
        import keras
        import tensorflow as tf

        import keras_gsp  # noqa: F401, registers the layers
        from keras_gsp.retrieval.serving.served_encoder import ServedEncoder

        model = keras.models.load_model(encoder, compile=False)
        served = ServedEncoder(model, crop_fraction=crop_fraction)
        self.size = served.embedding_size
        self.output, self.batch_size = Path(output), batch_size
        spec = tf.TensorSpec([batch_size], tf.string)
        self._embed = tf.function(
            served.embedded_bytes, input_signature=[spec], autograph=False
        )

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
            pairs = zip(read, words.numpy(), strict=False)
            status[start:stop] = [
                why or word.decode() for (_, why), word in pairs
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
    from training.runs.scoring import encoder_file, load_preprocessing

    start = time.perf_counter()
    encoder = encoder_file(command.run)
    crop: Any = "auto"  # as the file says
    if command.run.suffix != ".keras":
        expected = load_preprocessing(command.run)
        crop = 1.0 if expected is None else expected.crop_fraction
    rows, size = listed(command.images), command.shard_size
    shards = [rows[first : first + size] for first in range(0, len(rows), size)]
    batch_size = command.batch_size
    plan = {
        "format": 2,
        "encoder": hashlib.sha256(encoder.read_bytes()).hexdigest(),
        "crop_fraction": crop,
        "images": hashlib.sha256(json.dumps(rows).encode()).hexdigest(),
        "num_shards": len(shards),
        "shard_size": size,
        "batch_size": batch_size,
    }
    missing = begin(command.output, plan)
    items: list[dict[str, Any]] = [
        {"number": number, "rows": shards[number]} for number in missing
    ]
    output = str(command.output.resolve())
    options = str(encoder.resolve()), crop, output, batch_size
    num_new = sum(len(item["rows"]) for item in items)
    written: Any = ()
    if items and command.engine == "ray":
        written = _by_ray(command, items, options)
    elif items:
        written = map(ShardWriter(*options), items)
    with tqdm(total=num_new, unit="image", desc="embed") as bar:
        for done in written:
            bar.update(done["count"])
    manifest = finish(command.output, plan)
    print(f"{command.output}: {manifest['num_images']} images")
    for status, count in manifest["statuses"].items():
        print(f"{count:>9}  {status}")
    if num_new:
        seconds = time.perf_counter() - start
        print(f"{num_new / seconds:.0f} images/s, {num_new} of them new")
    print(
        "Next: training.embedding.collection.read_embeddings"
        f"({str(command.output)!r}) yields them for an index"
    )


def _by_ray(command, items, options):
    """Embeds shards in Ray's workers, in any order; Ray replaces dead ones."""
    import ray
    import ray.data

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    own: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if command.address is None:
        own |= {"num_cpus": 1 + command.workers, "include_dashboard": False}
    # A worker has one processor.
    threads = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
    variables = dict.fromkeys(threads, "1") | {"PYTHONPATH": os.getcwd()}
    own["runtime_env"] = {"env_vars": variables}
    ray.init(command.address, **own)
    try:
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        # An unreadable image is a status; a shard that fails ends the run.
        context.max_errored_blocks = 0
        yield from (
            ray.data.from_items(items, override_num_blocks=len(items))
            .map(
                ShardWriter,  # type: ignore[arg-type]
                fn_constructor_args=options,
                compute=ray.data.ActorPoolStrategy(size=command.workers),
                num_cpus=1,
                num_gpus=command.gpus or None,
            )
            .iter_rows()
        )
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
