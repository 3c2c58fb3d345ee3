"""Embed shards of images, in this process or in Ray's workers."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from training.embedding.collection import OK, shard_name
from training.embedding.sources import read_shard

Items = list[dict[str, Any]]


class ShardWriter:
    """Embeds whole shards with one encoder.

    The result depends only on the shard and the encoder: batches never cross
    the end of a shard, and all have the same size. `encoder` is a `.keras`
    file; `threads` limits TensorFlow's threads, None for one per core.
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
        served = ServedEncoder(model, None, crop_fraction)
        self.size = served.embedding_size
        self.output, self.batch_size = Path(output), batch_size

        @tf.function(input_signature=[tf.TensorSpec([batch_size], tf.string)])
        def embed(contents):
            images, status = served.decoded(contents)
            return served.embedded(images), status

        self._embed = embed

    def __call__(self, item: dict[str, Any]) -> dict[str, Any]:
        """Writes the `shard` of a `number`, unless it exists."""
        path = self.output / shard_name(item["number"])
        if not path.exists():
            self._write(path, read_shard(item["shard"]))
        return {"number": item["number"], "rows": item["shard"]["rows"]}

    def _write(self, path, rows):
        import pyarrow as pa
        import pyarrow.parquet as pq

        from keras_gsp.storage.whole import whole_file

        status = [problem or "" for *_, problem in rows]
        embeddings = np.zeros((len(rows), self.size), "float32")
        for start in range(0, len(rows), self.batch_size):
            batch = rows[start : start + self.batch_size]
            contents = [content or b"" for _, _, content, _ in batch]
            contents += [b""] * (self.batch_size - len(batch))
            found, words = self._embed(contents)
            stop = start + len(batch)
            embeddings[start:stop] = found.numpy()[: len(batch)]
            for i, word in enumerate(words.numpy()[: len(batch)], start):
                status[i] = status[i] or word.decode()
        # Otherwise a diverged encoder would look like distant neighbors.
        for i in np.flatnonzero(~np.isfinite(embeddings).all(axis=1)).tolist():
            if status[i] == OK:
                status[i] = "failed: the embedding is not finite"
        is_ok = np.array([word == OK for word in status])
        vectors = pa.FixedSizeListArray.from_arrays(
            pa.array(np.where(is_ok[:, None], embeddings, 0).reshape(-1)),
            self.size,
            mask=pa.array(~is_ok),
        )
        ids, labels, *_ = zip(*rows, strict=True)
        texts = {"id": ids, "label": labels, "status": status}
        columns = {k: pa.array(v, pa.string()) for k, v in texts.items()}
        order = "id", "label", "embedding", "status"
        columns["embedding"] = vectors
        table = pa.table({name: columns[name] for name in order})
        with whole_file(path) as temporary:
            pq.write_table(table, temporary)


def ray_engine(
    items: Items,
    options: dict[str, Any],
    *,
    address: str | None,
    workers: int,
    cpus: float,
    gpus: float,
) -> Iterator[Any]:
    """Embeds shards in Ray's workers, in any order, and replaces dead ones.

    `options` are of `ShardWriter`; `cpus` and `gpus` are of each worker.
    `address` is a Ray cluster, such as "auto" or "ray://host:10001", whose
    machines see all files under the same paths; None starts Ray here.
    """
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise ImportError(
            "`engine` ray needs Ray: pip install 'keras-gsp[ray]'; the local "
            f"engine works without it. Received: {error}."
        ) from error
    is_ours = not ray.is_initialized()
    if is_ours:
        _start(ray, address, workers, cpus)
    try:
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        # An unreadable image is a status; a shard that fails ends the run.
        # Ray itself gives the shard of a dead worker to another one.
        context.max_errored_blocks = 0
        rows = ray.data.from_items(
            items, override_num_blocks=max(1, len(items))
        )
        found = rows.map(
            ShardWriter,  # type: ignore[arg-type]
            fn_constructor_kwargs=options,
            compute=ray.data.ActorPoolStrategy(size=workers),
            num_cpus=cpus,
            num_gpus=gpus or None,
        )
        yield from found.iter_rows()
    finally:
        if is_ours:
            ray.shutdown()


def _start(ray, address, workers, cpus):
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet = {"log_to_driver": False, "logging_level": "error"}
    if address is None:
        ray.init(
            num_cpus=max(1, int(-(-workers * cpus // 1)) + 1),
            # Items are paths and counts, so the store needs little.
            object_store_memory=100 * 2**20,
            include_dashboard=False,
            runtime_env={"env_vars": {"PYTHONPATH": os.getcwd()}},
            **quiet,
        )
        return
    try:
        # Ray would try to connect for five minutes.
        host, _, port = address.removeprefix("ray://").rpartition(":")
        if host and port.isdigit():
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(address=address, **quiet)
    except (OSError, RuntimeError, ValueError) as error:
        raise ConnectionError(
            "`address` must be a Ray cluster that answers. To start one: "
            f"ray start --head. Received: {address}: {error}."
        ) from error
