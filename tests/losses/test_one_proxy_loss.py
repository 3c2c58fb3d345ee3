"""Limits and edges of single proxy losses."""

import numpy as np

import keras_gsp as gsp
from tests.compiled import compiled
from tests.gradients import gradients


def test_squared_distances_take_twice_the_temperature():
    """The original's convention: softmax of -|x - p|^2 / (2 T)."""
    random = np.random.default_rng(0)
    embeddings, proxies = random.normal(size=(6, 4)), random.normal(size=(3, 4))
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    proxies /= np.linalg.norm(proxies, axis=1, keepdims=True)
    labels = np.arange(6) % 3
    squares = np.square(embeddings[:, None] - proxies[None]).sum(axis=-1)
    powers = np.exp(-squares / 0.22)
    expected = -np.log(powers[np.arange(6), labels] / powers.sum(axis=1))
    similarities = (embeddings @ proxies.T)[..., None]
    value = gsp.losses.ProxyNCALoss(0.11)(labels, similarities)
    np.testing.assert_allclose(value, expected.mean(), rtol=1e-5)


def test_low_temperature_does_not_overflow():
    similarities = np.array([[[1.0], [-1.0]], [[1.0], [-1.0]]])
    loss = gsp.losses.ProxyNCALoss(temperature=1e-3)
    np.testing.assert_allclose(loss([0, 1], similarities), 1e3, rtol=1e-5)


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


def similarities(own, others=0.2):
    """One sample of class 0 among three, one proxy each."""
    return np.array([[[own], [others], [others]]], "float32")


def test_an_angle_of_nothing_or_of_pi_has_a_finite_gradient():
    loss = gsp.losses.ArcFaceLoss()
    # XLA rounds in another way than eager TensorFlow.
    function = compiled(lambda s: loss([0], s))
    for own in (1.0, -1.0, 1.0 + 1e-6, -1.0 - 1e-6):
        (found,) = gradients(function, similarities(own))
        assert np.all(np.isfinite(found))


def test_arcface_never_rises_with_the_own_cosine():
    loss = gsp.losses.ArcFaceLoss(margin=0.7, scale=8.0)
    values = [
        float(loss([0], similarities(own))) for own in np.linspace(-1, 1, 41)
    ]
    assert np.all(np.diff(values) < 0.0)


def test_without_a_margin_all_three_are_the_same_loss():
    labels = np.arange(6) % 3
    cosines = np.random.default_rng(0).uniform(-1, 1, size=(6, 3, 2))
    plain = gsp.losses.NormalizedSoftmaxLoss(temperature=1 / 16)
    expected = plain(labels, cosines)
    for loss in (
        gsp.losses.ArcFaceLoss(margin=0.0, scale=16.0),
        gsp.losses.CosFaceLoss(margin=0.0, scale=16.0),
    ):
        np.testing.assert_allclose(loss(labels, cosines), expected, rtol=1e-5)


def test_only_the_nearest_sub_center_is_moved():
    cosines = np.array([[[0.9, 0.1], [0.3, -0.2]]], "float32")
    for loss in (gsp.losses.ArcFaceLoss(), gsp.losses.CosFaceLoss()):
        (found,) = gradients(lambda s, loss=loss: loss([0], s), cosines)
        assert np.all(found[0, :, 0] != 0.0)
        np.testing.assert_array_equal(found[0, :, 1], 0.0)
