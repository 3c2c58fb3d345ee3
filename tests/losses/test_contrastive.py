"""What is particular to the contrastive loss."""

import numpy as np

import keras_gsp as gsp
from tests.gradients import gradients


def on_a_circle(*degrees):
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def test_each_kind_of_pair_is_averaged_over_its_own_active_pairs():
    # Chords: 0-60 is 1, the others are longer than the margin of 1.2.
    embeddings = on_a_circle(0.0, 60.0, 180.0, 240.0)
    loss = gsp.losses.ContrastiveLoss(negative_margin=1.2)
    # Positives 0-180 and 60-240 at distance 2, negatives 0-60, 180-240 at 1.
    value = loss([0, 1, 0, 1], embeddings)
    np.testing.assert_allclose(value, 2.0 + 0.2, rtol=1e-6)


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


def test_without_positives_the_negative_part_remains():
    embeddings = on_a_circle(0.0, 60.0)
    loss = gsp.losses.ContrastiveLoss(negative_margin=1.5)
    np.testing.assert_allclose(loss([0, 1], embeddings), 0.5, rtol=1e-6)


def test_without_active_pairs_the_loss_is_zero():
    embeddings = on_a_circle(0.0, 180.0)
    loss = gsp.losses.ContrastiveLoss()
    np.testing.assert_array_equal(loss([0, 1], embeddings), 0.0)
