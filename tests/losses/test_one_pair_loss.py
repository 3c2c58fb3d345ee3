"""Limits and edges of single pair and list losses."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.losses.triplet import active_partners
from tests.compiled import compiled
from tests.gradients import gradients


def test_duplicates_are_not_counted_as_active_positives():
    # Float32 noise of a Gram matrix would make them 3e-4 apart and halve
    # the mean of the two pairs that really are apart.
    embeddings = np.random.default_rng(0).normal(size=(1, 128))
    embeddings = np.repeat(embeddings, 3, axis=0).astype("float32")
    embeddings[2] *= -1.0
    loss = gsp.losses.ContrastiveLoss()
    value = loss([0, 0, 0], embeddings)
    np.testing.assert_allclose(value, 2.0, rtol=1e-6)
    (gradient,) = gradients(lambda e: loss([0, 0], e), embeddings[:2])
    np.testing.assert_array_equal(gradient, 0.0)


def test_duplicates_of_one_class_cost_nothing():
    embeddings = np.random.default_rng(0).normal(size=(1, 128))
    embeddings = np.repeat(embeddings, 3, axis=0).astype("float32")
    loss = gsp.losses.CosineContrastiveLoss()
    np.testing.assert_array_equal(loss([0, 0, 0], embeddings), 0.0)


def on_a_circle(*degrees):
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def test_extreme_sharpness_does_not_overflow():
    embeddings = on_a_circle(0.0, 1.0, 180.0, 181.0).astype("float32")
    loss = gsp.losses.MultiSimilarityLoss(alpha=1e4, beta=1e4, base=0.0)
    # log(1 + e^x) / 1e4 is the similarity itself: 1 for both kinds of pair.
    value = loss([0, 1, 0, 1], embeddings)
    np.testing.assert_allclose(value, 2.0, rtol=1e-3)


def test_mining_drops_negatives_far_below_every_positive():
    embeddings = on_a_circle(0.0, 10.0, 90.0)
    labels = [0, 0, 1]
    mined = gsp.losses.MultiSimilarityLoss(mining_margin=0.1)
    np.testing.assert_array_equal(mined(labels, embeddings), 0.0)
    every = gsp.losses.MultiSimilarityLoss()
    assert every(labels, embeddings) > 0.0


def test_a_wide_mining_margin_keeps_every_pair():
    random = np.random.default_rng(0)
    labels, embeddings = np.arange(12) % 3, random.normal(size=(12, 4))
    mined = gsp.losses.MultiSimilarityLoss(mining_margin=2.1)
    every = gsp.losses.MultiSimilarityLoss()
    np.testing.assert_allclose(
        mined(labels, embeddings), every(labels, embeddings), rtol=1e-6
    )


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


def test_perfect_rankings_have_an_average_precision_of_one():
    embeddings = np.repeat(np.eye(3, 4), 4, axis=0)
    embeddings += 0.01 * np.random.default_rng(0).normal(size=(12, 4))
    loss = gsp.losses.SmoothAPLoss(1e-3, counts_query=False)
    np.testing.assert_allclose(
        loss(np.repeat(np.arange(3), 4), embeddings), 0.0, atol=1e-5
    )


def test_smooth_ap_at_a_low_temperature_is_average_precision():
    random = np.random.default_rng(0)
    labels, embeddings = np.arange(15) % 3, random.normal(size=(15, 4))
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    precisions = []
    for a in range(15):
        others = np.delete(np.arange(15), a)
        order = others[np.argsort(-(unit[others] @ unit[a]))]
        hits = labels[order] == labels[a]
        at = np.cumsum(hits) / np.arange(1, 15)
        precisions.append(at[hits].mean())
    loss = gsp.losses.SmoothAPLoss(1e-5, counts_query=False)
    np.testing.assert_allclose(
        1.0 - loss(labels, embeddings), np.mean(precisions), atol=1e-4
    )


def test_the_pull_of_positives_fades_with_distance():
    loss = gsp.losses.PotentialFieldLoss(radius=0.2, decay=4.0)
    angles = np.array([0.0, 0.1, 0.3, 2.5])
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    values = [
        float(loss.between([0], points[:1], [0], point[None]))
        for point in points
    ]
    distances = 2.0 * np.sin(angles / 2.0)
    expected = -(np.maximum(distances, 0.2) ** -4.0)
    np.testing.assert_allclose(values, expected, rtol=1e-4)


def test_potentials_of_a_learner_are_those_of_samples_and_proxies():
    """Every charge meets every other one, from both ends."""
    random = np.random.default_rng(0)
    labels = np.arange(6) % 3
    embeddings = random.normal(size=(6, 4)).astype("float32")
    encoder = keras.Sequential([keras.Input((4,)), keras.layers.Identity()])
    model = gsp.models.MetricLearner(
        encoder, proxies=gsp.layers.ClassProxies(3, proxies_per_class=2)
    )
    loss = gsp.losses.PotentialFieldLoss(radius=1.0, decay=2.0)
    model.compile("sgd", loss=loss, run_eagerly=True)
    charges = np.concatenate([embeddings, model.proxies.flat_proxies()])
    classes = np.concatenate([labels, model.proxies.proxy_labels])
    potentials = loss(classes, charges) * len(charges)
    found = model.compute_loss(y=labels, y_pred=embeddings)
    np.testing.assert_allclose(found, potentials / 6, rtol=1e-5)
