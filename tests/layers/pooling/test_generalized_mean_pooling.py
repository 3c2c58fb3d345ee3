"""Generalized-mean pooling between average and maximum."""

import numpy as np
import pytest
from keras import ops

from keras_gsp.layers import GeneralizedMeanPooling
from tests.gradients import gradients


def positive_features(shape=(2, 4, 3, 5)):
    return np.random.default_rng(0).random(shape).astype("float32")


@pytest.mark.parametrize("power", [1.0, 3.0, 7.5])
def test_equals_the_formula(power):
    features = positive_features()
    pooled = GeneralizedMeanPooling(power)(features)
    flat = features.reshape(2, 12, 5).astype("float64")
    expected = np.mean(flat**power, axis=1) ** (1 / power)
    np.testing.assert_allclose(pooled, expected, rtol=1e-5)


def test_power_one_is_average_and_large_power_the_maximum():
    features = 50.0 * positive_features()
    average = GeneralizedMeanPooling(1.0)(features)
    largest = GeneralizedMeanPooling(300.0)(features)
    np.testing.assert_allclose(average, features.mean((1, 2)), rtol=1e-5)
    np.testing.assert_allclose(largest, features.max((1, 2)), rtol=1e-2)


def test_zero_and_negative_features_have_finite_gradient():
    features = -positive_features()
    features[0] = 0.0

    def loss(features):
        return ops.sum(GeneralizedMeanPooling(10.0)(features))

    assert np.isfinite(gradients(loss, features)[0]).all()


def test_a_learned_power_starts_as_given_and_moves():
    features = positive_features()
    layer = GeneralizedMeanPooling(3.0, learn_power=True)
    fixed = GeneralizedMeanPooling(3.0)
    np.testing.assert_allclose(layer(features), fixed(features), rtol=1e-5)
    (weight,) = layer.trainable_weights
    weight.assign(np.log(4.0))  # p = 5
    np.testing.assert_allclose(
        layer(features), GeneralizedMeanPooling(5.0)(features), rtol=1e-5
    )
