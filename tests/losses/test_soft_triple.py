"""What is particular to the SoftTriple loss."""

import numpy as np

import keras_gsp as gsp


def test_one_center_and_no_margin_is_a_scaled_softmax():
    random = np.random.default_rng(0)
    similarities = random.uniform(-1, 1, (6, 4, 1))
    labels = np.arange(6) % 4
    soft = gsp.losses.SoftTripleLoss(scale=20.0, margin=0.0)
    nca = gsp.losses.ProxyNCALoss(temperature=0.05)
    np.testing.assert_allclose(
        soft(labels, similarities), nca(labels, similarities), rtol=1e-5
    )


def test_small_gamma_takes_the_nearest_center():
    random = np.random.default_rng(0)
    similarities = random.uniform(-1, 1, (6, 4, 3))
    labels = np.arange(6) % 4
    nearest = similarities.max(axis=-1, keepdims=True)
    loss = gsp.losses.SoftTripleLoss(gamma=1e-3)
    np.testing.assert_allclose(
        loss(labels, similarities), loss(labels, nearest), rtol=1e-4
    )


def test_scale_of_a_hundred_does_not_underflow():
    similarities = np.array([[[-1.0], [1.0]]])
    loss = gsp.losses.SoftTripleLoss(scale=100.0, margin=0.01)
    np.testing.assert_allclose(loss([0], similarities), 201.0, rtol=1e-6)
