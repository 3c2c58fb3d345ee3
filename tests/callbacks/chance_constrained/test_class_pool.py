"""A pool holds the first samples of every class, embedded once each."""

import itertools

import numpy as np
import pytest

from keras_gsp.callbacks.chance_constrained.class_pool import (
    check_pool,
    embed_class_pool,
    pool_batches,
)


def numbered(labels, batch_size=4):
    """Batches whose images are their own row numbers, (rows, 1)."""
    labels = np.asarray(labels)
    images = np.arange(len(labels), dtype="float32")[:, None]
    return [
        (images[start : start + batch_size], labels[start : start + batch_size])
        for start in range(0, len(labels), batch_size)
    ]


def embed_numbers(batches, **arguments):
    """The identity as encoder; checks that all batches have one size."""
    lengths = set()

    def embed(images):
        lengths.add(len(images))
        return images

    result = embed_class_pool(
        lambda classes: batches, embed, batch_size=3, **arguments
    )
    assert lengths == {3}
    return result


def test_first_samples_of_each_class_in_the_order_they_come():
    labels = [0, 1, 0, 1, 1, 2, 0, 2, 2, 0, 1]
    pool, is_there = embed_numbers(numbered(labels), num_classes=3, pool_size=3)
    assert is_there.all()
    np.testing.assert_array_equal(
        pool[..., 0], [[0, 2, 6], [1, 3, 4], [5, 7, 8]]
    )


def test_a_small_class_is_masked():
    pool, is_there = embed_numbers(
        numbered([0, 0, 0, 1]), num_classes=2, pool_size=3
    )
    np.testing.assert_array_equal(is_there, [[1, 1, 1], [1, 0, 0]])
    np.testing.assert_array_equal(pool[1, 1:], 0.0)
    # Below a minimum it is read again.
    _, is_there = embed_numbers(
        numbered([0, 0, 0, 1]), num_classes=2, pool_size=3, min_size=2
    )
    np.testing.assert_array_equal(is_there, [[1, 1, 1], [1, 1, 0]])


def test_endless_data_are_read_until_every_class_is_full():
    batches = itertools.cycle(numbered([0, 0, 1, 2, 1, 2, 2, 2]))
    pool, is_there = embed_numbers(batches, num_classes=3, pool_size=2)
    assert is_there.all()
    np.testing.assert_array_equal(pool[..., 0], [[0, 1], [2, 4], [3, 5]])


def test_absent_classes_are_named():
    with pytest.raises(ValueError, match=r"none of 13 classes: 1, 2, .*\.\.\."):
        embed_numbers(numbered([0]), num_classes=14, pool_size=2)
    endless = itertools.cycle(numbered([0, 2, 0, 2], batch_size=500))
    with pytest.raises(ValueError, match="none of 1 classes: 1"):
        embed_numbers(endless, num_classes=3, pool_size=2)


@pytest.mark.parametrize("label", [-1, 3])
def test_a_label_without_proxies_is_refused(label):
    with pytest.raises(ValueError, match=rf"\[0, num_classes=3\).*{label}"):
        embed_numbers(numbered([0, 1, label]), num_classes=3, pool_size=1)


def test_embeddings_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="diverged"):
        embed_class_pool(
            lambda classes: numbered([0, 1]),
            lambda images: images * np.nan,
            num_classes=2,
            pool_size=1,
        )


def test_batches_without_labels_are_refused():
    with pytest.raises(TypeError, match="Received: ndarray"):
        embed_numbers([np.zeros((2, 1))], num_classes=2, pool_size=1)


def read(pool, classes=(0, 1), problem=1, seed=0):
    batches = pool_batches(
        pool, np.array(classes), problem=problem, seed=seed, batch_size=2
    )
    return [np.asarray(images).tolist() for images, _ in batches]


def test_arrays_come_in_an_order_of_seed_and_problem():
    pool = np.arange(5), np.zeros(5, "int64")
    assert sorted(sum(read(pool), [])) == [0, 1, 2, 3, 4]
    assert read(pool) == read(pool)
    assert read(pool) != read(pool, problem=2)
    assert read(pool) != read(pool, seed=1)


def test_a_function_is_asked_for_classes_and_problem():
    asked = []

    def pool(classes, problem):
        asked.append((classes.tolist(), problem))
        return numbered([0, 1])

    assert read(pool, classes=(1,), problem=3) == [[[0.0], [1.0]]]
    assert asked == [([1], 3)]


def test_what_cannot_be_read_twice_is_refused():
    with pytest.raises(TypeError, match="pool=<list_iterator"):
        check_pool(iter([1]))
    with pytest.raises(TypeError, match="pool=3"):
        check_pool(3)
    with pytest.raises(TypeError, match="no iterator"):
        read(lambda classes, problem: iter([]))
