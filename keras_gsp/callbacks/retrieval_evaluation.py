"""Retrieval scores in the logs of `fit`."""

from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import tree

from keras_gsp.embeddings.labeled_batches import (
    LabeledBatches,
    encoded,
    encoded_batches,
)
from keras_gsp.embeddings.labeled_embeddings import checked_labels
from keras_gsp.embeddings.processes import from_first_process
from keras_gsp.metrics.retrieval import retrieval_scores
from keras_gsp.models.truncated import normalization_of, truncated
from keras_gsp.ops.arguments import check_count


class RetrievalEvaluation(keras.callbacks.Callback):
    """Scores the encoder by retrieval and adds the scores to the logs.

    Place it before the callbacks that watch a score, such as
    `EarlyStopping(monitor="val_map_at_r", mode="max")`: they find
    `val_map_at_r`, `val_precision_at_1`, `val_precision_at_r` and
    `val_recall_at_<k>` like `val_loss`.

    Scores the encoder of a model that has one (`MetricLearner`), otherwise
    the model's own output; of a dict of outputs `"embedding"`. Distances are
    Euclidean, between embeddings as they are.

    Args:
        dataset: the queries: a finite `tf.data.Dataset` or
            `keras.utils.PyDataset` of (images, labels) batches, or a tuple of
            two arrays.
        name: prefix of the logs. Default `"val"`.
        gallery: the images searched in, of the same types. Default `None`:
            `dataset` searches itself, without each query's own image.
        every_epochs: epochs from one evaluation to the next, at least 1.
            Default 1. The epochs between have no scores, as with
            `validation_freq`.
        every_steps: steps from one additional evaluation to the next, at
            least 1; these scores are in `history`. Default `None`: at the end
            of epochs only.
        recall_at: the k of each Recall@k. Default `(1, 2, 4, 8)`.
        max_classes: number of classes to score, at least 1, drawn once: of
            many classes a part is enough to compare steps. Scores on fewer
            classes are higher. Only arrays save reading the other classes.
            Default `None`: all.
        seed: integer seed of that draw. Default 0.
        truncate_to: sizes of leading parts of the embedding to score too,
            normalized again, for `gsp.losses.Matryoshka`: `val_map_at_r_64`
            and so on. Default none.
        batch_size: images embedded at once when arrays are given. Default 64.
        block_size: see `gsp.metrics.retrieval_scores`.

    Attributes:
        scores: newest scores as `retrieval_scores` returns them, or `None`.
        history: list of dicts, each evaluation's scores with its `"step"`
            (optimizer steps so far).

    Raises:
        TypeError: a data set of another kind, or an encoder without one
            embedding.
        ValueError: an infinite or empty data set, arrays of different
            lengths, no two images of one class, a number below 1.

    Example:

    ```python
    import keras
    import numpy as np
    import keras_gsp as gsp

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
        every_epochs: int = 1,
        every_steps: int | None = None,
        recall_at: Sequence[int] = (1, 2, 4, 8),
        max_classes: int | None = None,
        seed: int = 0,
        truncate_to: Sequence[int] = (),
        batch_size: int = 64,
        block_size: int | None = None,
    ) -> None:
        super().__init__()
        check_count(every_epochs=every_epochs, batch_size=batch_size)
        check_count(
            is_optional=True, every_steps=every_steps, max_classes=max_classes
        )
        self.dataset = dataset
        self.name = name
        self.gallery = gallery
        self.every_epochs = every_epochs
        self.every_steps = every_steps
        self.max_classes = max_classes
        self.seed = seed
        self.recall_at = tuple(recall_at)
        for size in truncate_to:
            check_count(truncate_to=size)
        self.truncate_to = tuple(truncate_to)
        self.batch_size = batch_size
        self.block_size = block_size
        self.scores: Any = None
        self.history: list[dict[str, Any]] = []
        self._steps = 0
        self._queries = LabeledBatches(dataset, "dataset", batch_size)
        self._gallery: LabeledBatches | None = None
        self._classes: np.ndarray | None = None
        if gallery is not None:
            self._gallery = LabeledBatches(gallery, "gallery", batch_size)

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Checks data sets and encoder before the first step."""
        self._steps = 0
        self._choose_classes()
        self._queries.check_has_pair(self._gallery)
        next(encoded_batches(self._encoder(), self._queries))

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Evaluates every `every_steps` steps."""
        self._steps += 1
        if self.every_steps and self._steps % self.every_steps == 0:
            self.evaluate()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Adds the scores to the logs every `every_epochs` epochs."""
        if (epoch + 1) % self.every_epochs != 0:
            return
        if not self.history or self.history[-1]["step"] != self._step():
            self.evaluate()
        if logs is not None:
            for key, value in self.scores.items():
                if not key.startswith("num_"):
                    logs[f"{self.name}_{key}"] = value

    def evaluate(self) -> dict[str, Any]:
        """Embeds the data set and scores it now.

        Returns:
            The dict of `gsp.metrics.retrieval_scores`.
        """
        self._choose_classes()
        encoder = self._encoder()
        sides: dict[str, Any] = {}
        sides["embeddings"], labels = encoded(encoder, self._queries)
        options: dict[str, Any] = {
            "labels": labels,
            "recall_at": self.recall_at,
            "block_size": self.block_size,
        }
        if self._gallery is not None:
            sides["gallery_embeddings"], options["gallery_labels"] = encoded(
                encoder, self._gallery
            )
        scores = retrieval_scores(**sides, **options)
        for size in self.truncate_to:
            kind = normalization_of(encoder)
            cut: dict[str, Any] = {
                name: truncated(rows, size, kind)
                for name, rows in sides.items()
            }
            for name, value in retrieval_scores(**cut, **options).items():
                if not name.startswith("num_"):
                    scores[f"{name}_{size}"] = value
        # All processes must act on the same scores.
        self.scores = from_first_process(lambda: scores)
        self.history.append({"step": self._step()} | self.scores)
        return self.scores

    def _choose_classes(self):
        """Limits queries and gallery to the classes that are drawn, once."""
        if self.max_classes is None or self._classes is not None:
            return
        found = np.unique(np.concatenate([own for _, own in self._queries]))
        drawn = np.random.default_rng(self.seed).permutation(len(found))
        self._classes = found[np.sort(drawn[: self.max_classes])]
        self._queries = _SomeClasses(self._queries, self._classes)
        if self._gallery is not None:
            self._gallery = _SomeClasses(self._gallery, self._classes)

    def _step(self):
        optimizer = getattr(self.model, "optimizer", None)
        if optimizer is None:
            return self._steps
        return int(keras.ops.convert_to_numpy(optimizer.iterations))

    def _encoder(self):
        encoder = getattr(self.model, "encoder", None)
        return encoder if isinstance(encoder, keras.Model) else self.model


class _SomeClasses(LabeledBatches):
    """The samples of some classes, in batches of the old size."""

    def __init__(self, batches: LabeledBatches, classes: np.ndarray) -> None:
        super().__init__(batches.dataset, batches.name, batches.batch_size)
        self.classes = classes

    def __iter__(self) -> Iterator[tuple[Any, np.ndarray]]:
        size = self.batch_size
        if isinstance(self.dataset, tuple):
            images, labels = self.dataset[0], np.asarray(self.dataset[1])
            labels = checked_labels(labels, len(labels), self.name)
            chosen = np.flatnonzero(np.isin(labels, self.classes))
            for start in range(0, len(chosen), size):
                part = chosen[start : start + size]
                yield images[part], labels[part]
            return
        waiting: list[Any] = []
        for images, labels in super().__iter__():
            is_chosen = np.isin(labels, self.classes)
            rows = [np.asarray(x)[is_chosen] for x in tree.flatten(images)]
            rows.append(labels[is_chosen])
            if waiting:
                rows = list(
                    map(np.concatenate, zip(waiting, rows, strict=True))
                )
            while len(rows[-1]) >= size:
                *first, own = (array[:size] for array in rows)
                yield tree.pack_sequence_as(images, first), own
                rows = [array[size:] for array in rows]
            waiting = rows
        if waiting and len(waiting[-1]):
            yield tree.pack_sequence_as(images, waiting[:-1]), waiting[-1]
