"""MemoryDrift measures how old the slots of a memory are."""

import warnings

import keras
import numpy as np
import pytest

import keras_gsp as gsp

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(16, 6)).astype("float32")
LABELS = np.repeat(np.arange(4), 4)


def learner_of(rate, *, capacity=32, warmup_steps=0, memory=True):
    keras.utils.set_random_seed(0)
    own = {}
    if memory:
        own["memory"] = gsp.layers.EmbeddingMemory(
            capacity, warmup_steps=warmup_steps
        )
    learner = gsp.models.MetricLearner(
        keras.Sequential([keras.Input((6,)), keras.layers.Dense(4)]),
        **own,
    )
    learner.compile(
        keras.optimizers.SGD(rate),
        loss=gsp.losses.ContrastiveLoss(),
        run_eagerly=True,
    )
    return learner


def fit(learner, callback, epochs=3, **arguments):
    return learner.fit(
        IMAGES,
        LABELS,
        batch_size=8,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=[callback],
        **arguments,
    ).history


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_drift_is_the_distance_of_an_epoch_scaled_to_the_oldest_slot():
    learner = learner_of(0.05, capacity=12)
    snapshots = [np.array(learner.encoder(IMAGES))]
    snap = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: snapshots.append(
            np.array(learner.encoder(IMAGES))
        )
    )
    callback = gsp.callbacks.MemoryDrift((IMAGES, LABELS))
    found = learner.fit(
        IMAGES,
        LABELS,
        batch_size=8,
        epochs=3,
        shuffle=False,
        verbose=0,
        callbacks=[callback, snap],
    ).history
    # Two steps an epoch; a slot of 12 is overwritten after 1.5 steps.
    expected = [
        (1 - np.mean(np.sum(unit(now) * unit(before), axis=1))) * 1.5 / 2
        for before, now in zip(snapshots, snapshots[1:], strict=False)
    ]
    np.testing.assert_allclose(found["memory_drift"], expected, rtol=1e-4)


def test_the_memory_counts_once_it_is_warm():
    callback = gsp.callbacks.MemoryDrift((IMAGES, LABELS))
    found = fit(learner_of(0.01, capacity=64, warmup_steps=3), callback)
    assert found["memory_fill"] == [0.0, 0.5, 0.75]


def test_only_large_drift_warns():
    with pytest.warns(UserWarning, match="moved far while they were in"):
        fit(
            learner_of(5.0),
            gsp.callbacks.MemoryDrift((IMAGES, LABELS), limit=0.01),
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        fit(learner_of(1e-4), gsp.callbacks.MemoryDrift((IMAGES, LABELS)))


def test_a_resumed_run_logs_what_a_whole_run_does(tmp_path):
    whole = fit(
        learner_of(0.05), gsp.callbacks.MemoryDrift((IMAGES, LABELS)), 4
    )
    for epochs in (2, 4):
        learner = learner_of(0.05)
        callback = gsp.callbacks.MemoryDrift((IMAGES, LABELS))
        resume = gsp.callbacks.ExactResume(tmp_path, callbacks=[callback])
        step = resume.restore(learner)
        found = learner.fit(
            IMAGES,
            LABELS,
            batch_size=8,
            initial_epoch=step // 2,
            epochs=epochs,
            shuffle=False,
            verbose=0,
            callbacks=[callback, resume],
        ).history
    assert found["memory_drift"] == whole["memory_drift"][2:]


def test_a_model_without_a_memory_is_refused():
    with pytest.raises(RuntimeError, match="with a `memory`"):
        fit(
            learner_of(0.1, memory=False),
            gsp.callbacks.MemoryDrift((IMAGES, LABELS)),
        )


@pytest.mark.parametrize(
    "wrong", [{"limit": 0.0}, {"limit": 1.5}, {"batch_size": 0}]
)
def test_numbers_out_of_range_are_refused(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        gsp.callbacks.MemoryDrift((IMAGES, LABELS), **wrong)
