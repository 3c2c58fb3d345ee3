"""Class-balanced batches: cycles, distinct samples, any step."""

import keras
import numpy as np
import pytest

from keras_gsp.data import ClassBalancedSampler


def labels_of(counts, seed=0):
    labels = np.repeat(np.arange(len(counts)) * 10**12, counts)
    return np.random.default_rng(seed).permutation(labels)


def drawn(count, labels, num_classes, num_samples, **options):
    """The first batches, (count, num_classes * num_samples)."""
    sampler = ClassBalancedSampler(
        labels,
        classes_per_batch=num_classes,
        samples_per_class=num_samples,
        **options,
    )
    return np.stack([sampler[step] for step in range(count)])


@pytest.mark.parametrize(
    ("num_classes", "per_batch"), [(12, 4), (13, 4), (5, 5)]
)
def test_every_class_is_seen_once_in_a_cycle(num_classes, per_batch):
    labels = labels_of([4] * num_classes)
    steps = -(-num_classes // per_batch)
    batches = drawn(3 * steps, labels, per_batch, 2)
    classes = labels[batches[:, ::2]]
    for cycle in classes.reshape(3, -1):
        assert set(cycle) == set(labels)
        assert len(cycle) - num_classes < per_batch
        assert len(set(cycle[:num_classes])) == num_classes
    orders = {tuple(cycle) for cycle in classes.reshape(3, -1)}
    assert len(orders) == 3


def test_classes_and_samples_of_a_batch_are_distinct_and_stand_together():
    labels = labels_of([4, 5, 9] * 4)
    for batch in drawn(40, labels, 7, 4):
        classes = labels[batch].reshape(7, 4)
        assert (classes == classes[:, :1]).all()
        assert len(set(classes[:, 0])) == 7
        assert len(set(batch)) == 28


def test_a_class_of_one_image_is_left_out_of_pairs():
    labels = labels_of([1, 3, 3])
    with pytest.warns(UserWarning, match="1 of 3 classes have one image"):
        batches = drawn(5, labels, 2, 2)
    assert 0 not in labels[batches]
    assert 0 in labels[drawn(5, labels, 2, 1)]


@pytest.mark.parametrize("count", [2, 3])
def test_a_small_class_goes_round(count):
    labels = labels_of([count, 8])
    for batch in drawn(20, labels, 2, 7):
        small = batch[labels[batch] == 0]
        times = np.unique(small, return_counts=True)[1]
        expected = {7 // count, -(-7 // count)}
        assert len(times) == count and set(times) <= expected


def test_every_set_of_samples_is_equally_likely():
    drawn_pairs = np.sort(drawn(4000, np.zeros(5, "int64"), 1, 2), axis=1)
    pairs, times = np.unique(drawn_pairs, axis=0, return_counts=True)
    assert len(pairs) == 10
    # Five standard deviations of a count with mean 400.
    assert abs(times - 400).max() < 5 * np.sqrt(400 * 0.9)


@pytest.mark.parametrize("seed", [-1, 2**63, 2**70 + 1])
def test_batches_follow_the_seed_and_the_step(seed):
    labels = labels_of([2, 3, 4, 5, 6, 7, 2, 2, 3])
    one = drawn(6, labels, 3, 2, seed=seed)
    keras.utils.set_random_seed(99)
    np.testing.assert_array_equal(one, drawn(6, labels, 3, 2, seed=seed))
    assert (one != drawn(6, labels, 3, 2, seed=seed + 1)).any()
    options = {"classes_per_batch": 3, "samples_per_class": 2, "seed": seed}
    sampler = ClassBalancedSampler(labels, **options)
    for step in (5, 1, 4, 0):
        np.testing.assert_array_equal(sampler[step], one[step])
    # String labels draw the same batches as numbers.
    names = [f"class {label:020}" for label in labels]
    np.testing.assert_array_equal(one, drawn(6, names, 3, 2, seed=seed))
