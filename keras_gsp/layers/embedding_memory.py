"""Memory of past embeddings as references for a pair loss (XBM)."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_gsp._checks import (
    check_count,
    check_integer,
    check_same_size,
    require,
)
from keras_gsp._configured import ConfiguredLayer, known_size
from keras_gsp._labels import batch_labels
from keras_gsp._tensor import Tensor
from keras_gsp.ops.labels import flat_labels


class EmbeddingMemory(ConfiguredLayer):
    """Stores the embeddings and labels of the last training steps (XBM).

    A ring buffer of `capacity` slots. In training, a call overwrites the
    oldest slots with the batch, without gradient, and returns the whole
    memory for the `between` of any pair loss. `excluded` marks empty slots
    and, for each sample, the slot it was just written to, so that no sample is
    compared with itself. The state is kept in non-trainable weights, so files
    contain it. Under `tf.distribute`, pass the batch of all replicas.

    Args:
        capacity: int, number of slots, at least the batch size.
        warmup_steps: int, training steps that fill the memory before `is_warm`,
            while embeddings change too fast to be compared across steps, at
            least 0. Default 0. The reference code also waits until the memory
            is full; here empty slots are excluded instead.

    Call arguments:
        embeddings: (batch, embedding_size).
        labels: (batch,) or (batch, 1), integers. Stored as int64; as int32 on
            JAX unless `jax_enable_x64` is set.
        training: bool, whether to store the batch. Otherwise the memory does
            not change, and no slot is excluded as a sample's own.

    Returns:
        (reference_labels, reference_embeddings, excluded): (capacity,)
        integers, (capacity, embedding_size) in the variable's dtype, and
        boolean (batch, capacity).

    Raises:
        TypeError: labels that are no numbers.
        ValueError: a batch larger than the memory, or fractions as labels
            (`tf.errors.InvalidArgumentError` in a TensorFlow graph).

    Example:
        ```python
        memory = gsp.layers.EmbeddingMemory(100)
        loss = gsp.losses.ContrastiveLoss()
        embeddings, labels = np.random.normal(size=(8, 16)), np.arange(8) % 4
        *references, excluded = memory(embeddings, labels, training=True)
        value = loss.between(labels, embeddings, *references, excluded=excluded)
        ```

    Reference:
        Wang et al., "Cross-Batch Memory for Embedding Learning", CVPR 2020,
        algorithm 1. Its code removes pairs of similarity above 1 - 1e-5 as
        self pairs, which also removes duplicate images.
    """

    def __init__(
        self, capacity: int, *, warmup_steps: int = 0, **kwargs: Any
    ) -> None:
        # Labels given as floats must not be rounded to the compute dtype.
        super().__init__(autocast=False, **kwargs)
        check_count(capacity=capacity)
        check_integer(least=0, warmup_steps=warmup_steps)
        self.capacity = capacity
        self.warmup_steps = warmup_steps

    def __call__(
        self, embeddings: Tensor, labels: Tensor = None, **kwargs: Any
    ) -> Any:
        """Calls the layer; host labels are checked before Keras cuts them."""
        if labels is not None:
            labels = batch_labels(labels)
        return super().__call__(embeddings, labels, **kwargs)

    def build(
        self, embeddings_shape: tuple, labels_shape: tuple | None = None
    ) -> None:
        size = known_size(embeddings_shape)
        self.embeddings = self._add_state(
            "embeddings", (self.capacity, size), self.variable_dtype
        )
        # int64 where the backend has it.
        widest = ops.convert_to_tensor(np.zeros((), "int64")).dtype
        self.labels = self._add_state(
            "labels", (self.capacity,), keras.backend.standardize_dtype(widest)
        )
        self.position = self._add_state("position", (), "int32")
        self.num_filled = self._add_state("num_filled", (), "int32")
        self.num_steps = self._add_state("num_steps", (), "int32")

    def call(
        self, embeddings: Tensor, labels: Tensor, training: bool | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Stores a batch in training, and returns the memory."""
        labels = ops.cast(flat_labels(labels), self.labels.dtype)
        embeddings = ops.convert_to_tensor(embeddings)
        check_same_size(labels, embeddings)
        slots = ops.arange(self.capacity, dtype="int32")
        batch_slots = ops.full(ops.shape(labels), -1, dtype="int32")  # No slot.
        if training:
            batch_slots = self._enqueue(embeddings, labels)
        is_empty = slots >= self.num_filled
        excluded = is_empty[None, :] | (slots[None, :] == batch_slots[:, None])
        return (
            ops.convert_to_tensor(self.labels),
            ops.convert_to_tensor(self.embeddings),
            excluded,
        )

    def reset_state(self) -> None:
        """Empties the memory; the steps of the warm-up stay counted."""
        for state in (self.position, self.num_filled):
            state.assign(0)

    @property
    def is_warm(self) -> Tensor:
        """Boolean scalar tensor: whether more than `warmup_steps` steps ran."""
        return ops.convert_to_tensor(self.num_steps) > self.warmup_steps

    def _enqueue(self, embeddings, labels):
        """Overwrites the oldest slots and returns their indices, (batch,)."""
        batch = ops.shape(labels)[0]
        # JAX infers shapes with symbols, which cannot be compared.
        if isinstance(batch, int) or ops.is_tensor(batch):
            labels = require(
                labels,
                batch <= self.capacity,
                f"A batch must fit into `capacity={self.capacity}` slots.",
                batch=batch,
            )
        position = ops.convert_to_tensor(self.position)
        # `arange` needs a static length: a cast one is traced on JAX.
        offsets = ops.arange(ops.shape(labels)[0], dtype="int32")
        slots = (position + offsets) % self.capacity
        embeddings = ops.cast(
            ops.stop_gradient(embeddings), self.embeddings.dtype
        )
        for state, new in (self.embeddings, embeddings), (self.labels, labels):
            old = ops.convert_to_tensor(state)
            state.assign(ops.scatter_update(old, slots[:, None], new))
        self.position.assign((position + batch) % self.capacity)
        self.num_filled.assign(
            ops.minimum(self.num_filled + batch, self.capacity)
        )
        self.num_steps.assign(self.num_steps + 1)
        return slots

    def _add_state(self, name, shape, dtype):
        return self.add_weight(
            name=name,
            shape=shape,
            dtype=dtype,
            initializer="zeros",
            trainable=False,
            autocast=False,
            aggregation="only_first_replica",
        )
