"""Class-balanced batches: cycles, distinct samples, exact resume."""

import itertools

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.data.class_balanced_batches import class_balanced_batches

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="tf.data pipelines"
)


def labels_of(counts, seed=0):
    labels = np.repeat(np.arange(len(counts)) * 10**12, counts)
    return np.random.default_rng(seed).permutation(labels)


def take(dataset, count):
    return np.stack(list(dataset.take(count).as_numpy_iterator()))


@pytest.mark.parametrize(
    ("num_classes", "per_batch"), [(12, 4), (13, 4), (5, 5)]
)
def test_every_class_is_seen_once_in_a_cycle(num_classes, per_batch):
    labels = labels_of([4] * num_classes)
    steps = -(-num_classes // per_batch)
    batches = take(
        class_balanced_batches(
            labels, classes_per_batch=per_batch, samples_per_class=2
        ),
        3 * steps,
    )
    classes = labels[batches[:, ::2]]
    for cycle in classes.reshape(3, -1):
        assert set(cycle) == set(labels)
        assert len(cycle) - num_classes < per_batch
        assert len(set(cycle[:num_classes])) == num_classes
    orders = {tuple(cycle) for cycle in classes.reshape(3, -1)}
    assert len(orders) == 3


def test_no_class_is_in_a_batch_twice_and_its_samples_stand_together():
    labels = labels_of([3] * 11)
    batches = class_balanced_batches(
        labels, classes_per_batch=7, samples_per_class=3
    )
    for batch in take(batches, 40):
        classes = labels[batch].reshape(7, 3)
        assert (classes == classes[:, :1]).all()
        assert len(set(classes[:, 0])) == 7


def test_samples_are_distinct_when_a_class_has_enough():
    labels = labels_of([4, 5, 9])
    batches = class_balanced_batches(
        labels, classes_per_batch=3, samples_per_class=4
    )
    for batch in take(batches, 50):
        assert len(set(batch)) == 12


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_small_class_goes_round(count):
    labels = labels_of([count, 8])
    batches = class_balanced_batches(
        labels, classes_per_batch=2, samples_per_class=7
    )
    for batch in take(batches, 20):
        small = batch[labels[batch] == 0]
        times = np.unique(small, return_counts=True)[1]
        assert len(times) == count and set(times) <= {
            7 // count,
            -(-7 // count),
        }


def test_every_set_of_samples_is_equally_likely():
    labels = np.zeros(5, "int64")
    batches = class_balanced_batches(
        labels, classes_per_batch=1, samples_per_class=2
    )
    drawn = np.sort(take(batches, 4000), axis=1)
    pairs, times = np.unique(drawn, axis=0, return_counts=True)
    assert len(pairs) == 10
    # Five standard deviations of a count with mean 400.
    assert abs(times - 400).max() < 5 * np.sqrt(400 * 0.9)


@pytest.mark.parametrize("first_step", [1, 3, 4, 11])
def test_a_run_goes_on_exactly_at_any_step(first_step):
    options = {"classes_per_batch": 3, "samples_per_class": 2, "seed": 5}
    labels = labels_of([2, 3, 4, 5, 6, 7, 1, 2, 3, 4])
    whole = take(class_balanced_batches(labels, **options), 20)
    rest = take(
        class_balanced_batches(labels, first_step=first_step, **options), 5
    )
    np.testing.assert_array_equal(rest, whole[first_step : first_step + 5])


@pytest.mark.parametrize("seed", [-1, 2**63, 2**70 + 1])
def test_batches_follow_the_seed(seed):
    options = {"classes_per_batch": 3, "samples_per_class": 2}
    labels = labels_of([6] * 9)
    one = take(class_balanced_batches(labels, seed=seed, **options), 6)
    keras.utils.set_random_seed(99)
    same = take(class_balanced_batches(labels, seed=seed, **options), 6)
    other = take(class_balanced_batches(labels, seed=seed + 1, **options), 6)
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_string_labels_draw_the_same_batches_as_numbers():
    labels = labels_of([3] * 5) // 10**12
    options = {"classes_per_batch": 3, "samples_per_class": 2}
    names = [f"class {label}" for label in labels]
    np.testing.assert_array_equal(
        take(class_balanced_batches(names, **options), 5),
        take(class_balanced_batches(labels[:, None], **options), 5),
    )


def test_the_data_set_is_infinite_and_of_known_shape():
    batches = gsp.data.class_balanced_batches(
        labels_of([2] * 4), classes_per_batch=2, samples_per_class=3
    )
    assert batches.element_spec.shape == (6,)
    assert batches.element_spec.dtype == "int64"
    assert int(batches.cardinality()) == -1
    assert len(list(itertools.islice(batches, 50))) == 50


@pytest.mark.parametrize(
    ("labels", "changes", "error", "message"),
    [
        ([0, 1, 1], {"classes_per_batch": 3}, ValueError, "2 classes.*=3"),
        ([], {}, ValueError, r"shape \(0,\)"),
        (np.eye(3), {}, ValueError, r"shape \(3, 3\)"),
        ([0, None], {}, TypeError, "NoneType"),
        ([0, 1], {"classes_per_batch": 0}, ValueError, "classes_per_batch=0"),
        ([0, 1], {"samples_per_class": 0}, ValueError, "samples_per_class=0"),
        ([0, 1], {"samples_per_class": 1.0}, ValueError, "per_class=1.0"),
        ([0, 1], {"samples_per_class": True}, ValueError, "per_class=True"),
        ([0, 1], {"first_step": -1}, ValueError, "first_step=-1"),
        ([0, 1], {"seed": "a"}, ValueError, "seed='a'"),
    ],
)
def test_bad_input_is_refused(labels, changes, error, message):
    options = {"classes_per_batch": 2, "samples_per_class": 2} | changes
    with pytest.raises(error, match=message):
        class_balanced_batches(labels, **options)
