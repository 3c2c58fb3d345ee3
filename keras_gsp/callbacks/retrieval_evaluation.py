"""Retrieval scores in the logs of `fit`."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_gsp._checks import check_count
from keras_gsp._labeled_batches import LabeledBatches, encoded, encoded_batches
from keras_gsp._processes import from_first_process
from keras_gsp.metrics.retrieval import retrieval_scores
from keras_gsp.models.encoder import normalization_of, truncated


class RetrievalEvaluation(keras.callbacks.Callback):
    """Scores the encoder by retrieval and adds the scores to the logs.

    Place it before the callbacks that watch a score, such as
    `EarlyStopping(monitor="val_map_at_r", mode="max")`, and behind
    `SwapEMAWeights(swap_on_epoch=True)`. Scores are `val_map_at_r`,
    `val_precision_at_1`, `val_precision_at_r`, `val_recall_at_<k>`, and
    `val_num_dropped` where queries have no match to find: of the encoder of a
    model that has one, otherwise of the model's own output, by Euclidean
    distance.

    Args:
        dataset: the queries: a finite `tf.data.Dataset` or `PyDataset` of
            (images, labels) batches, or a tuple of two arrays. Images may be a
            dict of an encoder's inputs.
        name: prefix of the logs.
        gallery: the images searched in, of the same types. `None`: `dataset`
            searches itself, without each query's own image.
        validation_freq: epochs from one evaluation to the next, at least 1, as
            in `fit`; the epochs between have no scores.
        recall_at: the k of each Recall@k.
        truncate_to: sizes of leading parts of the embedding to score too,
            normalized again, for `MatryoshkaLoss`: `val_map_at_r_64`, ...
        batch_size: images embedded at once when arrays are given.

    Attributes:
        scores: newest scores as `retrieval_scores` returns them, or `None`.

    Raises:
        TypeError: another data set, or an encoder without one embedding.
        ValueError: an infinite or empty data set, arrays of different
            lengths, no two images of one class, a number below 1.

    Example:

    ```python
    images = np.random.rand(24, 8, 8, 3).astype("float32")
    labels = np.repeat(np.arange(6), 4)
    model = keras.Sequential([
        keras.layers.Flatten(), keras.layers.Dense(4),
    ])
    model.compile("adam", loss=gsp.losses.ContrastiveLoss())
    model.fit(images, labels, verbose=0, callbacks=[
        gsp.callbacks.RetrievalEvaluation((images, labels)),
        keras.callbacks.EarlyStopping("val_map_at_r", mode="max"),
    ])
    model.history.history["val_map_at_r"]
    ```
    """

    def __init__(
        self,
        dataset: Any,
        *,
        name: str = "val",
        gallery: Any = None,
        validation_freq: int = 1,
        recall_at: Sequence[int] = (1, 2, 4, 8),
        truncate_to: Sequence[int] = (),
        batch_size: int = 64,
    ) -> None:
        super().__init__()
        check_count(validation_freq=validation_freq, batch_size=batch_size)
        for size in truncate_to:
            check_count(truncate_to=size)
        self.name = name
        self.validation_freq = validation_freq
        self.recall_at = tuple(recall_at)
        self.truncate_to = tuple(truncate_to)
        self.scores: Any = None
        self._queries = LabeledBatches(dataset, "dataset", batch_size)
        self._gallery: LabeledBatches | None = None
        if gallery is not None:
            self._gallery = LabeledBatches(gallery, "gallery", batch_size)

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._queries.check_has_pair(self._gallery)
        next(encoded_batches(self._encoder(), self._queries))

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        if (epoch + 1) % self.validation_freq == 0:
            for key, value in self.evaluate().items():
                is_logged = not key.startswith("num_")
                # Without the queries that found nothing, scores are higher.
                is_logged |= key == "num_dropped" and value > 0
                if logs is not None and is_logged:
                    logs[f"{self.name}_{key}"] = value

    def evaluate(self) -> dict[str, Any]:
        """Returns the `gsp.metrics.retrieval_scores` of the data set now."""
        encoder = self._encoder()
        rows_of: dict[str, Any] = {}
        rows_of["embeddings"], labels = encoded(encoder, self._queries)
        options: dict[str, Any] = {"labels": labels}
        options["recall_at"] = self.recall_at
        if self._gallery is not None:
            rows_of["gallery_embeddings"], options["gallery_labels"] = encoded(
                encoder, self._gallery
            )
        scores = retrieval_scores(**rows_of, **options)
        for size in self.truncate_to:
            normalization = normalization_of(encoder)
            parts: dict[str, Any] = {
                name: truncated(rows, size, normalization)
                for name, rows in rows_of.items()
            }
            for name, value in retrieval_scores(**parts, **options).items():
                if not name.startswith("num_"):
                    scores[f"{name}_{size}"] = value
        # All processes must act on the same scores.
        self.scores = from_first_process(lambda: scores)
        return self.scores

    def _encoder(self):
        encoder = getattr(self.model, "encoder", None)
        return encoder if isinstance(encoder, keras.Model) else self.model
