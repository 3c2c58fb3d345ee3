"""Embedding memory against a Python list."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_gsp.layers.embedding_memory import EmbeddingMemory
from tests.compiled import not_on_jax
from tests.gradients import gradients

SIZE = 3
is_tensorflow = keras.backend.backend() == "tensorflow"


def batch_of(seed, batch=4):
    rng = np.random.default_rng(seed)
    embeddings = rng.normal(size=(batch, SIZE)).astype("float32")
    return embeddings, rng.integers(0, 3, batch)


def call(memory, *batch, training=True):
    return [np.asarray(out) for out in memory(*batch, training=training)]


def remembered(outputs):
    """What is not excluded for any sample, as a set of (label, vector)."""
    labels, embeddings, excluded = outputs
    kept = ~excluded.all(axis=0)
    return {
        (int(label), *vector)
        for label, vector in zip(labels[kept], embeddings[kept], strict=True)
    }


@pytest.mark.parametrize("capacity", [4, 6, 13])
def test_holds_the_last_samples_and_is_warm_once_the_steps_are_over(capacity):
    memory, queue = EmbeddingMemory(capacity, warmup_steps=2), []
    for step in range(8):
        embeddings, labels = batch_of(step)
        outputs = call(memory, embeddings, labels)
        queue.extend(
            (int(label), *vector)
            for label, vector in zip(labels, embeddings, strict=True)
        )
        assert remembered(outputs) == set(queue[-capacity:])
        assert outputs[2].shape == (4, capacity)
        call(memory, embeddings, labels, training=False)
        assert bool(memory.is_warm) == (step >= 2)


@not_on_jax
def test_only_a_sample_s_own_slot_is_excluded_when_full():
    memory = EmbeddingMemory(6)
    for step in range(5):
        embeddings, labels = batch_of(step)
        embeddings[:] = 1.0  # Nothing but the slot tells duplicates apart.
        _, _, excluded = call(memory, embeddings, labels)
    np.testing.assert_array_equal(excluded.sum(axis=1), np.ones(4))
    np.testing.assert_array_equal(np.argmax(excluded, axis=1), [4, 5, 0, 1])


def test_without_training_nothing_is_remembered_or_excluded():
    memory = EmbeddingMemory(6)
    call(memory, *batch_of(0))
    before = memory.get_weights()
    for training in (False, None):
        _, _, excluded = call(memory, *batch_of(1), training=training)
        np.testing.assert_array_equal(
            excluded, np.tile(np.arange(6) >= 4, (4, 1))
        )
    for old, new in zip(before, memory.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_no_gradient_reaches_what_is_remembered():
    memory = EmbeddingMemory(8)
    embeddings, labels = batch_of(0)
    memory.build(embeddings.shape)
    frozen = keras.ops.convert_to_tensor(embeddings)

    def remembering(anchors):
        if is_tensorflow:
            _, references, _ = memory(anchors, labels, training=True)
        else:
            state = [variable.value for variable in memory.variables]
            (_, references, _), _ = memory.stateless_call(
                [], state, anchors, labels, training=True
            )
        return ops.sum(ops.square(references)) + ops.sum(anchors * frozen)

    (found,) = gradients(remembering, embeddings)
    np.testing.assert_array_equal(found, embeddings)


@not_on_jax  # JAX has no int64 by default.
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_labels_keep_all_their_digits(policy):
    memory = EmbeddingMemory(4, dtype=policy)
    embeddings = ops.cast(batch_of(0)[0], policy[6:])
    for labels in (
        np.array([4097, 4098, 70000, 1]),
        10**12 + np.arange(4),
    ):
        given = ops.convert_to_tensor(labels[:, None])
        found, references, _ = call(memory, embeddings, given)
        np.testing.assert_array_equal(found, labels)
    assert references.dtype == "float32"
    np.testing.assert_array_equal(references, ops.cast(embeddings, "float32"))
