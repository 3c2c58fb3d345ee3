"""One shard: images in, a Parquet file of embeddings out."""

from pathlib import Path
from typing import Any

import numpy as np

from training.embedding.sources import read_shard

OK = "ok"


class ShardWriter:
    """Embeds whole shards with one encoder.

    What is written depends on the shard and the encoder alone: batches never
    reach over the end of a shard, and all have the same size.

    Args:
        encoder: file of the encoder, `.keras`.
        crop_fraction: as for `export_encoder`.
        output: folder of the shards.
        batch_size: images embedded at once.
        threads: threads of TensorFlow in this process; `None` for one a core.
    """

    def __init__(
        self,
        encoder: str,
        crop_fraction: float,
        output: str,
        batch_size: int,
        threads: int | None = None,
    ) -> None:
        import keras
        import tensorflow as tf

        import keras_gsp  # noqa: F401, registers the layers
        from keras_gsp.retrieval.serving.served_retriever import ServedEncoder

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
        """Writes a shard unless it is there, and says so.

        Args:
            item: `number` and `shard`.

        Returns:
            `number` and `rows`.
        """
        path = self.output / shard_name(item["number"])
        if not path.exists():
            self._write(path, read_shard(item["shard"]))
        return {"number": item["number"], "rows": item["shard"]["rows"]}

    def _write(self, path, rows):
        import pyarrow as pa
        import pyarrow.parquet as pq

        status = [problem or "" for *_, problem in rows]
        embeddings = np.zeros((len(rows), self.size), "float32")
        for start in range(0, len(rows), self.batch_size):
            contents = [
                content or b""
                for _, _, content, _ in rows[start : start + self.batch_size]
            ]
            count = len(contents)
            contents += [b""] * (self.batch_size - count)
            found, words = self._embed(contents)
            embeddings[start : start + count] = found.numpy()[:count]
            for i, word in enumerate(words.numpy()[:count].tolist(), start):
                status[i] = status[i] or word.decode()
        is_ok = np.array([word == OK for word in status])
        # An encoder that went astray must not look like a far neighbor.
        is_finite = np.isfinite(embeddings).all(axis=1)
        for i in np.flatnonzero(is_ok & ~is_finite).tolist():
            status[i] = "failed: the embedding is not finite"
        is_ok &= is_finite
        vectors = pa.FixedSizeListArray.from_arrays(
            pa.array(np.where(is_ok[:, None], embeddings, 0).reshape(-1)),
            self.size,
            mask=pa.array(~is_ok),
        )
        table = pa.table(
            {
                "id": pa.array([row[0] for row in rows], pa.string()),
                "label": pa.array([row[1] for row in rows], pa.string()),
                "embedding": vectors,
                "status": pa.array(status, pa.string()),
            }
        )
        # The package brings Keras along: not for an error or --help.
        from keras_gsp.storage.whole import whole_file

        with whole_file(path) as aside:
            pq.write_table(table, aside)


def shard_name(number: int) -> str:
    """Returns the name of a shard's file."""
    return f"shard-{number:06d}.parquet"
