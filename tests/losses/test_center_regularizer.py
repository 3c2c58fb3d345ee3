"""The center regularizer of SoftTriple."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from tests.gradients import central_differences, gradients
from tests.losses import proxy_oracle


def centers(num_classes=3, per_class=4):
    return np.random.default_rng(0).normal(size=(num_classes, per_class, 5))


def test_value_and_gradient_are_those_of_the_loops(double_precision):
    regularizer = gsp.losses.CenterRegularizer(0.3)
    value = regularizer(keras.ops.convert_to_tensor(centers()))
    expected = proxy_oracle.center_regularizer(centers(), 0.3)
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    (found,) = gradients(regularizer, centers())
    (slopes,) = central_differences(
        lambda w: proxy_oracle.center_regularizer(w, 0.3), centers()
    )
    np.testing.assert_allclose(found, slopes, atol=1e-9)


def test_equal_centers_and_single_ones_cost_nothing():
    equal = np.repeat(centers(3, 1), 4, axis=1).astype("float32")
    regularizer = gsp.losses.CenterRegularizer()
    np.testing.assert_array_equal(regularizer(equal), 0.0)
    np.testing.assert_array_equal(regularizer(equal[:, :1]), 0.0)
    (gradient,) = gradients(regularizer, equal)
    np.testing.assert_array_equal(gradient, 0.0)


def test_it_is_added_to_the_loss_of_a_model():
    layer = gsp.layers.ClassProxies(
        3,
        proxies_per_class=2,
        proxies_regularizer=gsp.losses.CenterRegularizer(0.5),
    )
    layer.build((None, 8))
    (penalty,) = layer.losses
    expected = proxy_oracle.center_regularizer(
        keras.ops.convert_to_numpy(layer.proxies).astype("float64"), 0.5
    )
    np.testing.assert_allclose(penalty, expected, rtol=1e-5)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="Received: weight=-0.1"):
        gsp.losses.CenterRegularizer(-0.1)
    with pytest.raises(ValueError, match=r"Received: shape \(4, 5\)"):
        gsp.losses.CenterRegularizer()(np.ones((4, 5)))
