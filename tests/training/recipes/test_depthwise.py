"""A depthwise convolution as a sum of products is the convolution."""

import keras
import numpy as np
import pytest
from keras import ops

from training.recipes.depthwise import use_products


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("strides", [1, 2])
@pytest.mark.parametrize("kernel_size", [3, (5, 2)])
def test_results_are_those_of_the_convolution(padding, strides, kernel_size):
    images = np.random.default_rng(0).normal(size=(2, 9, 8, 3))
    layer = keras.layers.DepthwiseConv2D(
        kernel_size,
        strides,
        padding,
        activation="relu",
        bias_initializer="uniform",
    )
    expected = layer(images)
    network = keras.Sequential([layer])
    use_products(network)
    np.testing.assert_allclose(network(images), expected, atol=1e-5)


def test_a_saved_network_has_the_convolution_again(tmp_path):
    network = keras.applications.MobileNetV2(
        input_shape=(32, 32, 3), alpha=0.35, include_top=False, weights=None
    )
    images = ops.ones((1, 32, 32, 3))
    expected = network(images)
    use_products(network)
    np.testing.assert_allclose(network(images), expected, atol=1e-5)
    network.save(tmp_path / "network.keras")
    again = keras.models.load_model(tmp_path / "network.keras")
    np.testing.assert_allclose(again(images), expected, atol=1e-5)
