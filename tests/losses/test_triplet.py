"""What is particular to the triplet loss: its counts of active triplets."""

import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.losses.triplet import active_partners
from tests.compiled import compiled
from tests.gradients import gradients


def problem(classes, per_class, size, seed=0):
    random = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), per_class)
    vectors = random.normal(size=(classes * per_class, size))
    return labels, vectors.astype("float32")


def by_broadcasting(labels, embeddings, margin):
    """All batch^3 hinges at once, in float64: value and active count."""
    unit = embeddings.astype("float64")
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    distances = np.linalg.norm(unit[:, None] - unit[None], axis=-1)
    same = labels[:, None] == labels[None]
    positive = same & ~np.eye(len(labels), dtype=bool)
    hinges = distances[:, :, None] - distances[:, None, :] + margin
    hinges = np.where(positive[:, :, None] & ~same[:, None, :], hinges, 0.0)
    return hinges[hinges > 0.0].mean()


@pytest.mark.parametrize(
    ("classes", "per_class"), [(32, 4), (2, 40)], ids=["few", "many"]
)
def test_all_triplets_of_a_large_batch_in_float32(classes, per_class):
    labels, embeddings = problem(classes, per_class, size=64)
    value = gsp.losses.TripletLoss()(labels, embeddings)
    expected = by_broadcasting(labels, embeddings, 0.05)
    np.testing.assert_allclose(value, expected, rtol=1e-5)


def test_counts_are_those_of_the_active_triplets():
    distances = np.array([[0.5, 0.8, 0.4, 0.6, 0.9]])
    is_positive = np.array([[True, True, False, False, False]])
    partners, valid = active_partners(
        distances,
        is_positive.astype("float64"),
        (~is_positive).astype("float64"),
        0.15,
    )
    # 0.5 + 0.15 exceeds 0.4 and 0.6, 0.8 + 0.15 exceeds all three.
    np.testing.assert_array_equal(partners, [[2, 3, -2, -2, -1]])
    np.testing.assert_array_equal(valid, [6])


@pytest.mark.slow
def test_the_largest_batch_needs_no_cube():
    """512^3 float32 numbers would be half a gigabyte a tensor."""
    import resource

    labels, embeddings = problem(128, 4, size=16)
    loss = gsp.losses.TripletLoss()
    function = compiled(lambda e: loss(labels, e))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert np.isfinite(function(embeddings))
    (gradient,) = gradients(function, embeddings)
    assert np.all(np.isfinite(gradient))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 300_000  # kilobytes, the compiler's included


def test_mean_over_valid_divides_by_idle_triplets_too():
    embeddings = np.array([[1.0, 0.0], [0.8, 0.6], [-1.0, 0.0]])
    labels = [0, 0, 1]
    # Distances 0-1: 0.632, 0-2: 2, 1-2: 1.897. Of the two triplets only the
    # one of anchor 1 stays within a margin of 1.3.
    hinge = np.sqrt(0.4) - np.sqrt(3.6) + 1.3
    active = gsp.losses.TripletLoss(1.3)(labels, embeddings)
    valid = gsp.losses.TripletLoss(1.3, mean_over="valid")(labels, embeddings)
    np.testing.assert_allclose(active, hinge, rtol=1e-5)
    np.testing.assert_allclose(valid, hinge / 2, rtol=1e-5)
