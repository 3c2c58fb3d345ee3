"""What is particular to the Proxy-NCA++ loss."""

import numpy as np

import keras_gsp as gsp


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
