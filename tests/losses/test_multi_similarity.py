"""What is particular to the multi-similarity loss."""

import numpy as np

import keras_gsp as gsp


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
