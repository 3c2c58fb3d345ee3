"""Batches of confusable classes are a function of step and saved tables."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp

tf = pytest.importorskip("tensorflow")
SIZE = {"classes_per_batch": 4, "samples_per_class": 2}
LABELS = np.repeat(np.arange(8), 3)


def images():
    # Classes 0 and 1, 2 and 3, ... are near each other.
    random = np.random.default_rng(0)
    pairs = random.normal(size=(4, 6))[LABELS // 2]
    own = random.normal(size=(8, 6))[LABELS]
    return (3.0 * pairs + own).astype("float32")


def learner():
    keras.utils.set_random_seed(0)
    encoder = keras.Sequential(
        [keras.Input((6,)), keras.layers.Dense(6, use_bias=False)]
    )
    encoder.set_weights([np.eye(6)])
    made = gsp.models.MetricLearner(encoder)
    made.compile(keras.optimizers.SGD(1e-3), loss=gsp.losses.ContrastiveLoss())
    return made


def drawn(neighbors, count=40, **options):
    indices = gsp.data.class_balanced_batches(
        LABELS, **SIZE, neighbors=neighbors, **options
    )
    return [rows.numpy() for rows in indices.take(count)]


def pairs_of(rows):
    """Classes of a batch that are near another class in it."""
    classes = np.unique(LABELS[rows])
    assert len(classes) == 4
    return sum(int(one ^ 1 in classes) for one in classes)


def test_batches_hold_each_half_and_its_neighbors():
    table = (np.arange(8) ^ 1)[:, None]
    for rows in drawn(table):
        assert np.array_equal(LABELS[rows[::2]], LABELS[rows[1::2]])
        assert len({*rows}) == 8
        # Unless the first two are neighbors of each other.
        assert pairs_of(rows) in (2, 4)
    plain = np.mean([pairs_of(rows) for rows in drawn(np.full((8, 1), -1))])
    assert np.mean([pairs_of(rows) for rows in drawn(table)]) > plain + 1


def test_a_batch_depends_on_seed_and_step_alone():
    table = (np.arange(8) ^ 1)[:, None]
    whole = drawn(table, 6, seed=3)
    np.testing.assert_equal(drawn(table, 2, seed=3, first_step=4), whole[4:])
    assert not np.array_equal(drawn(table, 6, seed=4), whole)


def test_the_nearest_classes_are_found_beyond_the_margin():
    hard = gsp.callbacks.HardClasses((images(), LABELS), num_neighbors=2)
    rows = images() / np.linalg.norm(images(), axis=1, keepdims=True)
    means = np.stack([rows[LABELS == c].mean(axis=0) for c in range(8)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    for margin in (0.0, 0.5, 3.0):
        hard.margin = margin
        table = hard._neighbors(images(), LABELS)
        for one in range(8):
            distances = np.linalg.norm(means - means[one], axis=1)
            order = [
                c
                for c in np.argsort(distances)
                if c != one and distances[c] >= margin
            ]
            assert table[one].tolist() == [*order, -1, -1][:2]


def test_a_resumed_run_has_the_same_batches_and_bits(tmp_path):
    seen = {}

    def fit(epochs, folder):
        made = learner()
        hard = gsp.callbacks.HardClasses((images(), LABELS), delay=3)
        resume = gsp.callbacks.ExactResume(tmp_path / folder, callbacks=[hard])
        first = resume.restore(made)
        indices = gsp.data.class_balanced_batches(
            LABELS, **SIZE, first_step=first, neighbors=hard
        )
        taken = seen.setdefault(folder, [])

        def noted(rows):
            taken.append(rows.copy())
            return images()[rows]

        def batch(rows):
            pixels = tf.numpy_function(noted, [rows], "float32")
            return tf.ensure_shape(pixels, (8, 6)), tf.gather(LABELS, rows)

        made.fit(
            indices.map(batch).prefetch(2),
            steps_per_epoch=4,
            epochs=epochs,
            callbacks=[hard, resume],
            verbose=0,
        )
        return made, hard

    fit(2, "killed")
    del seen["killed"][:]
    resumed, hard = fit(5, "killed")
    whole, other = fit(5, "whole")
    np.testing.assert_equal(resumed.get_weights(), whole.get_weights())
    np.testing.assert_equal(hard.get_state(), other.get_state())
    # The last searches are those after steps 16 and 20.
    assert other.at(18) is None and other.at(19) is not None


def test_errors():
    # Another number of classes, rank, range and dtype.
    classes, rank = np.zeros((7, 1), int), np.zeros(8, int)
    for table in (classes, rank, np.full((8, 1), 8), np.eye(8)):
        with pytest.raises(ValueError, match="`neighbors` must be numbers"):
            drawn(table)
    for name in ("num_neighbors", "every_epochs", "delay"):
        with pytest.raises(ValueError, match=f"`{name}` must be"):
            gsp.callbacks.HardClasses((images(), LABELS), **{name: 0})
    with pytest.raises(ValueError, match="margin=-1"):
        gsp.callbacks.HardClasses((images(), LABELS), margin=-1.0)
