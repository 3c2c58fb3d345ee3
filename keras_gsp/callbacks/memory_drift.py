"""How far embeddings move while they are in a memory."""

import warnings
from typing import Any

import keras
import numpy as np

from keras_gsp.embeddings.labeled_batches import LabeledBatches, encoded
from keras_gsp.embeddings.processes import as_numpy
from keras_gsp.ops.arguments import check_count, check_interval
from keras_gsp.ops.normalization import unit_sphere


class MemoryDrift(keras.callbacks.Callback):
    r"""Measures how old the memory of a `MetricLearner` has become.

    A memory of past embeddings (XBM) compares a batch with embeddings of
    earlier weights, which helps while weights change slowly. At the end of
    every epoch a sample of images is embedded. With `d` its mean cosine
    distance to its embeddings of the last epoch, `k` the steps between and
    `a` the steps until a slot is overwritten,

    .. math:: \text{memory\_drift} = \min(1, d \cdot a / k)

    estimates the distance of the oldest slot to its embedding today. The logs
    get `memory_drift`, and `memory_fill`, the share of slots in use, which is
    0 until the memory is warm. Warns once, when training ends, if the drift
    exceeded `limit` at most evaluations of the warm memory: a lower learning
    rate, a smaller memory or a longer `warmup_steps` lowers it.

    Args:
        dataset: some hundred images: (images, labels) arrays or a finite data
            set of such batches.
        limit: cosine distance that is too far, in (0, 1]. Default 0.1.
        batch_size: images embedded at once when arrays are given. Default 64.

    Raises:
        ValueError: a number out of range.
        RuntimeError: a model without a memory, when `fit` begins.

    Example:
        ```python
        import keras
        import numpy as np
        import keras_gsp as gsp

        images = np.random.rand(16, 8).astype("float32")
        labels = np.repeat(np.arange(4), 4)
        learner = gsp.models.MetricLearner(
            keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)]),
            memory=gsp.layers.EmbeddingMemory(64),
        )
        learner.compile("adam", loss=gsp.losses.ContrastiveLoss())
        history = learner.fit(
            images,
            labels,
            epochs=3,
            verbose=0,
            callbacks=[gsp.callbacks.MemoryDrift((images, labels))],
        )
        history.history["memory_drift"]
        ```

    Reference:
        Wang et al., "Cross-Batch Memory for Embedding Learning", CVPR 2020,
        section 3.2, "slow drift".
    """

    def __init__(
        self, dataset: Any, *, limit: float = 0.1, batch_size: int = 64
    ) -> None:
        super().__init__()
        check_count(batch_size=batch_size)
        check_interval("(0, 1]", limit=limit)
        self.limit = limit
        self._batches = LabeledBatches(dataset, "dataset", batch_size)
        self._last: np.ndarray | None = None
        self._last_step = 0
        self._batch = 0.0
        self._before = 0, 0
        self._warm_drifts: list[float] = []

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Checks that the model has a memory, and embeds the sample."""
        if getattr(self.model, "memory", None) is None:
            raise RuntimeError(
                "`MemoryDrift` must watch a `MetricLearner` with a `memory`. "
                f"Received: {type(self.model).__name__} without one."
            )
        if self._last is None:
            self._last, self._last_step = self._embedded(), self._step()

    def on_train_batch_begin(
        self, batch: int, logs: dict | None = None
    ) -> None:
        """Notes where the memory is before the first step."""
        if not self._batch:
            self._before = self._state("position"), self._step()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Reads the batch size from the first step."""
        if not self._batch:
            position, step = self._before
            capacity = self.model.memory.capacity
            written = (self._state("position") - position) % capacity
            self._batch = (written or capacity) / (self._step() - step)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Adds `memory_drift` and `memory_fill`."""
        memory, step = self.model.memory, self._step()
        now = self._embedded()
        distance = 1.0 - float(np.mean(np.sum(now * self._last, axis=1)))
        age = min(step, memory.capacity / self._batch)
        drift = min(1.0, distance * age / max(1, step - self._last_step))
        self._last, self._last_step = now, step
        is_warm = self._step() > memory.warmup_steps
        fill = self._state("num_filled") / memory.capacity
        if is_warm:
            self._warm_drifts.append(drift)
        if logs is not None:
            logs["memory_drift"] = drift
            logs["memory_fill"] = fill if is_warm else 0.0

    def on_train_end(self, logs: dict | None = None) -> None:
        """Warns of a memory that was too old most of the time."""
        if not self._warm_drifts:
            return
        median = float(np.median(self._warm_drifts))
        if median > self.limit:
            warnings.warn(
                "Embeddings moved far while they were in the memory: cosine "
                f"distance {median:.2f} in the median, above {self.limit:g}. "
                "A memory needs slow changes: lower the learning rate or "
                "`capacity`, or raise `warmup_steps`.",
                stacklevel=2,
            )

    def _embedded(self):
        embeddings, _ = encoded(self.model.encoder, self._batches)
        return keras.ops.convert_to_numpy(unit_sphere(embeddings))

    def _state(self, name):
        """A counter of the memory; 0 before it is built."""
        memory = self.model.memory
        if not memory.built:
            return 0
        return int(as_numpy(getattr(memory, name)))

    def _step(self):
        return self._state("num_steps")
