"""Each class's hardest negative classes, found in the whole training set."""

from typing import Any

import keras
import numpy as np

from keras_gsp.data.class_balanced_batches import class_table
from keras_gsp.embeddings.labeled_batches import LabeledBatches, encoded
from keras_gsp.ops.arguments import check_count, check_not_negative
from keras_gsp.ops.normalization import unit_sphere
from keras_gsp.retrieval.index.exact import ExactIndex


class HardClasses(keras.callbacks.Callback):
    """Finds the most confusable classes of a whole data set, every n epochs.

    Embeds all training images, and searches the mean embedding of each class
    in an index of those of all classes. `gsp.data.class_balanced_batches`
    takes this callback as its `neighbors` and fills batches with classes that
    are hard to tell apart; until the first search, with random ones.

    A table of neighbors is used from `delay` steps after its search, not at
    once: a pipeline prepares batches ahead, and this way each batch depends
    on its step and the tables alone. `ExactResume(callbacks=[...])` saves the
    tables, and a resumed run has the same batches.

    Args:
        dataset: all training images once, with their classes: (images,
            labels) arrays or a finite data set of such batches. Labels are
            those of `class_balanced_batches`.
        num_neighbors: hardest classes kept of each class, at least 1. Default
            8.
        margin: smallest Euclidean distance between the mean unit embeddings
            of two classes, at least 0. A nearer class is left out: it may be
            the same one under another name, a false negative. Default 0.05.
        every_epochs: epochs from one search to the next, at least 1. Default
            1.
        delay: steps from a search to its first batch, at least 1; more than
            the pipeline prepares ahead. Default 32.
        batch_size: images embedded at once when arrays are given. Default 64.

    Raises:
        ValueError: a number out of its range.

    Example:

    ```python
    import keras
    import numpy as np
    import tensorflow as tf
    import keras_gsp as gsp

    images = np.random.rand(24, 8).astype("float32")
    labels = np.repeat(np.arange(6), 4)
    hard = gsp.callbacks.HardClasses((images, labels), num_neighbors=2)
    indices = gsp.data.class_balanced_batches(
        labels, classes_per_batch=4, samples_per_class=2, neighbors=hard
    )
    batches = indices.map(
        lambda rows: (tf.gather(images, rows), tf.gather(labels, rows))
    )
    learner = gsp.models.MetricLearner(
        keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
    )
    learner.compile("adam", loss=gsp.losses.ContrastiveLoss())
    learner.fit(
        batches, steps_per_epoch=4, epochs=2, callbacks=[hard], verbose=0
    )
    ```

    Reference:
        Suh et al., "Stochastic class-based hard example mining for deep
        metric learning", CVPR 2019, section 3.2, which searches learned class
        signatures in place of mean embeddings.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        num_neighbors: int = 8,
        margin: float = 0.05,
        every_epochs: int = 1,
        delay: int = 32,
        batch_size: int = 64,
    ) -> None:
        super().__init__()
        check_count(
            num_neighbors=num_neighbors,
            every_epochs=every_epochs,
            delay=delay,
            batch_size=batch_size,
        )
        check_not_negative(margin=margin)
        self.num_neighbors = num_neighbors
        self.margin = margin
        self.every_epochs = every_epochs
        self.delay = delay
        self._batches = LabeledBatches(dataset, "dataset", batch_size)
        # (first step, table), oldest first.
        self._tables: list[tuple[int, np.ndarray]] = []

    def at(self, step: int) -> np.ndarray | None:
        """Returns the neighbors that the batch of a step is drawn with.

        Args:
            step: number of the batch, at least 0.

        Returns:
            (classes, num_neighbors), numbers of classes in sorted order, the
            hardest first and -1 for none; `None` before the first search.
        """
        found = [table for first, table in self._tables if first <= step]
        return found[-1] if found else None

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Searches every `every_epochs` epochs."""
        if (epoch + 1) % self.every_epochs:
            return
        iterations = self.model.optimizer.iterations
        step = int(keras.ops.convert_to_numpy(iterations))
        encoder = getattr(self.model, "encoder", self.model)
        table = self._neighbors(*encoded(encoder, self._batches))
        # Tables that batches prepared ahead may still need.
        later = [first for first, _ in self._tables if first <= step]
        self._tables = self._tables[max(len(later) - 1, 0) :]
        self._tables.append((step + self.delay, table))

    def get_state(self) -> dict[str, Any]:
        """Returns the tables and their first steps, for `ExactResume`."""
        return {
            "first_steps": [first for first, _ in self._tables],
            "tables": [table for _, table in self._tables],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores what `get_state` returned."""
        self._tables = list(
            zip(state["first_steps"], state["tables"], strict=True)
        )

    def _neighbors(self, embeddings, labels):
        """The table of the hardest classes, (classes, num_neighbors)."""
        order, counts = class_table(labels)
        rows = keras.ops.convert_to_numpy(unit_sphere(embeddings))[order]
        means = np.add.reduceat(rows, np.cumsum(counts) - counts, axis=0)
        means = keras.ops.convert_to_numpy(unit_sphere(means))
        numbers = np.arange(len(counts))
        index = ExactIndex(means, numbers)
        # Room for itself and eight neighbors below the margin.
        count = min(len(counts), self.num_neighbors + 9)
        found = index.search(means, count)
        is_kept = found.indices != numbers[:, None]
        is_kept &= found.distances >= self.margin
        table = np.full((len(counts), self.num_neighbors), -1)
        for row, indices, kept in zip(
            table, found.indices, is_kept, strict=True
        ):
            hardest = indices[kept][: self.num_neighbors]
            row[: len(hardest)] = hardest
        return table
