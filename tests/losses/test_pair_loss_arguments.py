"""Ranges of the pair and list losses' arguments, and their edge values."""

import keras
import numpy as np

import keras_gsp as gsp


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


def test_far_positives_hardly_pull_and_near_ones_not_at_all():
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
