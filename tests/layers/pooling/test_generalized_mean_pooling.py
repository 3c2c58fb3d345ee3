"""Generalized-mean pooling between average and maximum."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_gsp.layers import GeneralizedMeanPooling
from tests.gradients import central_differences, gradients


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


def test_keras_file_round_trip(tmp_path):
    model = keras.Sequential(
        [keras.Input((None, None, 5)), GeneralizedMeanPooling(2.0)]
    )
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    features = positive_features()
    np.testing.assert_array_equal(model(features), loaded(features))
    assert model.output_shape == (None, 5)


def test_power_below_one_is_refused():
    with pytest.raises(ValueError, match="power=0.9"):
        GeneralizedMeanPooling(0.9)


def test_other_ranks_are_refused():
    with pytest.raises(ValueError, match="Received: shape"):
        GeneralizedMeanPooling()(np.ones((2, 5)))


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


@pytest.mark.usefixtures("double_precision")
def test_gradient_of_a_learned_power():
    features = positive_features().astype("float64")
    layer = GeneralizedMeanPooling(3.0, learn_power=True, dtype="float64")
    layer.build(features.shape)
    upstream = np.random.default_rng(1).normal(size=(2, 5))

    def loss(weight):
        flat = features.reshape(2, 12, 5)
        power = 1.0 + np.exp(weight)
        means = np.mean(flat**power, axis=1) ** (1.0 / power)
        return np.sum(means * upstream)

    def loss_of_layer(weight):
        with keras.StatelessScope(
            state_mapping=[(layer.log_power_excess, weight)]
        ):
            return ops.sum(layer(features) * upstream)

    start = np.array(np.log(2.0))
    (found,) = gradients(loss_of_layer, start)
    (expected,) = central_differences(loss, start)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_learned_power_cannot_start_at_one():
    with pytest.raises(ValueError, match="above 1 with learn_power=True"):
        GeneralizedMeanPooling(1.0, learn_power=True)
