"""Greedy k-center and its covering radius against naive loops."""

import numpy as np
import pytest
from keras import ops

from keras_gsp.ops.covering import covering_radius, greedy_k_center
from tests.compiled import on_tensorflow


def naive_greedy(pool, existing, num_centers):
    """One class, in float64, straight from the definition."""
    centers, chosen = list(existing), []
    for _ in range(num_centers):
        best, best_distance = None, -1.0
        for index, sample in enumerate(pool):
            if index in chosen:
                continue
            distance = min(
                (float(((sample - c) ** 2).sum()) for c in centers),
                default=np.inf,
            )
            if distance > best_distance:
                best, best_distance = index, distance
        chosen.append(best)
        centers.append(pool[best])
    return chosen


def naive_radius(pool, centers):
    distances = np.linalg.norm(pool[:, None] - centers[None], axis=-1)
    return distances.min(axis=1).max()


def random_pool(seed, classes, length, size):
    return np.random.default_rng(seed).normal(size=(classes, length, size))


def tied_pool(seed, classes, length, size):
    """Small integers: many duplicates and many exactly equal distances."""
    generator = np.random.default_rng(seed)
    return generator.integers(0, 3, (classes, length, size)).astype("float64")


@pytest.mark.parametrize("make_pool", [random_pool, tied_pool])
def test_equals_naive_loop(make_pool):
    pool = make_pool(0, 30, 7, 3)
    for num_existing, num_centers in [(0, 4), (1, 7), (4, 7)]:
        existing = make_pool(1, 30, num_existing, 3)
        chosen = greedy_k_center(pool, existing, num_centers)
        expected = [
            naive_greedy(p, e, num_centers)
            for p, e in zip(pool, existing, strict=True)
        ]
        np.testing.assert_array_equal(ops.convert_to_numpy(chosen), expected)


def test_masked_samples_are_never_taken_while_others_are_there():
    pool, existing = random_pool(0, 20, 8, 3), random_pool(1, 20, 1, 3)
    mask = np.random.default_rng(2).random((20, 8)) < 0.5
    mask[:, :3] = True
    chosen = ops.convert_to_numpy(greedy_k_center(pool, existing, 3, mask))
    for row in range(20):
        kept = np.flatnonzero(mask[row])
        expected = naive_greedy(pool[row][kept], existing[row], 3)
        np.testing.assert_array_equal(chosen[row], kept[expected])
    # Too few repeat the first one.
    mask = np.array([False, True, False, True])
    chosen = greedy_k_center(pool[0, :4], pool[0, 3:4], 4, mask)
    np.testing.assert_array_equal(ops.convert_to_numpy(chosen), [1, 3, 1, 1])


def test_radius_equals_naive_loop():
    pool, centers = random_pool(0, 6, 9, 4), random_pool(1, 6, 3, 4)
    expected = [naive_radius(p, c) for p, c in zip(pool, centers, strict=True)]
    radius = ops.convert_to_numpy(covering_radius(pool, centers))
    np.testing.assert_allclose(radius, expected, rtol=1e-6)
    assert (ops.convert_to_numpy(covering_radius(pool, pool)) == 0.0).all()
    line = np.array([[0.0, 0.0], [3.0, 4.0], [100.0, 0.0]])
    mask = np.array([True, True, False])
    assert float(covering_radius(line, line[:1], mask)) == 5.0


@on_tensorflow
def test_compiled_with_unknown_number_of_classes():
    import tensorflow as tf

    signature = [
        tf.TensorSpec((None, length, 3), "float32") for length in (7, 2)
    ]
    compiled = tf.function(
        lambda pool, existing: greedy_k_center(pool, existing, 3),
        input_signature=signature,
        jit_compile=True,
        autograph=False,
    )
    given = [random_pool(0, 10, n, 3).astype("float32") for n in (7, 2)]
    np.testing.assert_array_equal(compiled(*given), greedy_k_center(*given, 3))
