"""Class-disjoint halves against a naive loop, and their laws."""

import keras
import numpy as np
from keras import ops

from keras_gsp.ops.halves import class_disjoint_halves
from tests.compiled import compiled, not_on_jax, under_xla


def halves(labels, seed=0):
    return np.asarray(class_disjoint_halves(labels, seed))


def naive_halves(labels, seed):
    """Lays the classes out in order of their draws and cuts in the middle."""
    draws = np.asarray(keras.random.uniform((len(labels),), seed=seed))
    classes = list(dict.fromkeys(labels.tolist()))
    firsts = {c: labels.tolist().index(c) for c in classes}
    classes.sort(key=lambda c: (draws[firsts[c]], firsts[c]))
    first_half, before = np.zeros(len(labels), bool), 0
    for c in classes:
        count = (labels == c).sum()
        first_half[labels == c] = before + count / 2 <= len(labels) / 2
        before += count
    return first_half


def uneven_labels(seed, batch=23, num_classes=6):
    labels = np.random.default_rng(seed).integers(0, num_classes, batch)
    labels[:2] = [0, 1]  # Two classes at least.
    return labels


def test_equals_naive_loop_and_the_halves_share_no_class():
    for seed in range(8):
        labels = uneven_labels(seed, num_classes=(2, 3, 6)[seed % 3])
        first_half = halves(labels, seed)
        np.testing.assert_array_equal(first_half, naive_halves(labels, seed))
        assert not set(labels[first_half]) & set(labels[~first_half])
        assert 0 < first_half.sum() < len(labels)
        difference = abs(2 * int(first_half.sum()) - len(labels))
        assert difference <= np.bincount(labels).max()


def test_equal_draws_are_told_apart_by_position(monkeypatch):
    monkeypatch.setattr(
        keras.random, "uniform", lambda shape, seed: ops.zeros(shape)
    )
    first_half = halves(np.array([7, 3, 7, 3, 1, 1, 2, 2]))
    np.testing.assert_array_equal(first_half, [1, 1, 1, 1, 0, 0, 0, 0])


@not_on_jax
def test_an_int_seed_repeats_its_draw_and_nothing_else_does():
    labels = np.arange(40) % 20
    np.testing.assert_array_equal(halves(labels, 3), halves(labels, 3))
    assert (halves(labels, 3) != halves(labels, 4)).any()
    for seed in (None, keras.random.SeedGenerator(0)):
        assert (halves(labels, seed) != halves(labels, seed)).any()


@under_xla
def test_compiled_halves_are_class_disjoint_and_not_empty():
    labels = uneven_labels(1)
    split = compiled(lambda labels: class_disjoint_halves(labels, 5))
    first_half = np.asarray(split(labels))
    assert not set(labels[first_half]) & set(labels[~first_half])
    assert 0 < first_half.sum() < len(labels)
    assert np.asarray(split(np.array([2, 2, 2]))).all()  # A single class.
