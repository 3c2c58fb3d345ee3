"""What is particular to the proxy-anchor loss."""

import numpy as np

import keras_gsp as gsp


def test_second_sum_is_divided_by_all_proxies():
    """In a batch of one class its proxy has no negative, yet counts."""
    similarities = np.zeros((3, 4, 1))
    value = gsp.losses.ProxyAnchorLoss(margin=0.0, alpha=1.0)(
        [2, 2, 2], similarities
    )
    expected = np.log(4.0) + 3 * np.log(4.0) / 4
    np.testing.assert_allclose(value, expected, rtol=1e-6)


def test_every_proxy_of_a_class_is_one_proxy():
    random = np.random.default_rng(0)
    similarities = random.uniform(-1, 1, (6, 4, 1))
    loss = gsp.losses.ProxyAnchorLoss()
    labels = [0, 0, 1, 1, 1, 3]
    np.testing.assert_allclose(
        loss(labels, np.repeat(similarities, 3, axis=-1)),
        loss(labels, similarities),
        rtol=1e-6,
    )
