"""MemoryDrift measures how old the slots of a memory are."""

import warnings

import keras
import numpy as np
import pytest

import keras_gsp as gsp

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(16, 6)).astype("float32")
LABELS = np.repeat(np.arange(4), 4)


def learner_of(rate, *, capacity=32, **arguments):
    keras.utils.set_random_seed(0)
    memory = capacity and gsp.layers.EmbeddingMemory(capacity, **arguments)
    learner = gsp.models.MetricLearner(
        keras.Sequential([keras.Input((6,)), keras.layers.Dense(4)]),
        memory=memory,
    )
    learner.compile(
        keras.optimizers.SGD(rate),
        loss=gsp.losses.ContrastiveLoss(),
        run_eagerly=True,
    )
    return learner


def fit(learner, *callbacks, epochs=3, **arguments):
    return learner.fit(
        IMAGES,
        LABELS,
        batch_size=8,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=callbacks,
        **arguments,
    ).history


def drift(**arguments):
    return gsp.callbacks.MemoryDrift((IMAGES, LABELS), **arguments)


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
    found = fit(learner, drift(), snap)
    # Two steps an epoch; a slot of 12 is overwritten after 1.5 steps.
    expected = [
        (1 - np.mean(np.sum(unit(now) * unit(before), axis=1))) * 1.5 / 2
        for before, now in zip(snapshots, snapshots[1:], strict=False)
    ]
    np.testing.assert_allclose(found["memory_drift"], expected, rtol=1e-4)


def test_the_memory_counts_once_it_is_warm():
    found = fit(learner_of(0.01, capacity=64, warmup_steps=3), drift())
    assert found["memory_fill"] == [0.0, 0.5, 0.75]


def test_only_large_drift_warns():
    with pytest.warns(UserWarning, match="moved far while they were in"):
        fit(learner_of(5.0), drift(limit=0.01))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        fit(learner_of(1e-4), drift())


def test_a_resumed_run_logs_what_a_whole_run_does(tmp_path):
    whole = fit(learner_of(0.05), drift(), epochs=4)
    for epochs in (2, 4):
        learner, callback = learner_of(0.05), drift()
        resume = gsp.callbacks.ExactResume(tmp_path, callbacks=[callback])
        start = resume.restore(learner) // 2
        found = fit(
            learner, callback, resume, initial_epoch=start, epochs=epochs
        )
    assert found["memory_drift"] == whole["memory_drift"][2:]


def test_errors():
    with pytest.raises(RuntimeError, match="with a `memory`"):
        fit(learner_of(0.1, capacity=None), drift())
    for wrong in ({"limit": 0.0}, {"limit": 1.5}, {"batch_size": 0}):
        (name,) = wrong
        with pytest.raises(ValueError, match=f"`{name}` must be"):
            drift(**wrong)
