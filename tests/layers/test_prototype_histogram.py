"""Soft histograms against loops over features, their masks and errors."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_gsp.layers.prototype_histogram import PrototypeHistogram
from tests.compiled import not_on_jax
from tests.gradients import gradients, slope_errors

affinities = pytest.mark.parametrize("affinity", ["dot", "l2"])


def features_of(spatial=(2, 3)):
    return np.random.default_rng(0).normal(size=(3, *spatial, 4))


def built(affinity="dot", inverse_temperature=3.0, **kwargs):
    layer = PrototypeHistogram(
        5, inverse_temperature, affinity=affinity, **kwargs
    )
    layer.build((None, None, 4))
    layer.prototypes.assign(np.random.default_rng(1).normal(size=(5, 4)))
    return layer


def naive(features, layer):
    prototypes = np.asarray(layer.prototypes)
    rows = []
    for image in features:
        shares = []
        for feature in image.reshape(-1, image.shape[-1]):
            likeness = prototypes @ feature
            if layer.affinity == "l2":
                likeness = -np.linalg.norm(prototypes - feature, axis=1)
            powers = np.exp(layer.inverse_temperature * likeness)
            shares.append(powers / powers.sum())
        rows.append(np.mean(shares, axis=0))
    return np.array(rows)


@pytest.mark.usefixtures("double_precision")
@affinities
def test_value_and_gradient_equal_naive_loops(affinity):
    layer = built(affinity, dtype="float64")
    for spatial in [(2, 3), (7,), (1,)]:
        features = features_of(spatial)
        expected = naive(features, layer)
        np.testing.assert_allclose(layer(features), expected, atol=1e-10)
    weights = ops.convert_to_tensor(
        np.random.default_rng(1).normal(size=(3, 5))
    )

    def scalar(features, prototypes):
        mapping = [(layer.prototypes, prototypes)]
        with keras.StatelessScope(state_mapping=mapping):
            return ops.sum(layer(features) * weights)

    # Differences with step 1e-6 carry about nine digits.
    prototypes = np.asarray(layer.prototypes)
    assert slope_errors(scalar, features_of(), prototypes) < 1e-6


@not_on_jax
@affinities
def test_masked_features_do_not_count_even_when_nan(affinity):
    layer, features = built(affinity, 10.0), features_of((6,)).astype("float32")
    mask = np.ones((3, 6), bool)
    mask[:, 4:] = mask[1] = False
    expected = layer(features[:, :4])
    features[:, 4:] = np.nan
    found = np.array(layer(features, mask=mask))
    np.testing.assert_allclose(found[::2], expected[::2], atol=1e-6)
    np.testing.assert_array_equal(found[1], 0.0)
    (slopes,) = gradients(lambda x: ops.sum(layer(x, mask=mask) ** 2), features)
    assert np.isfinite(slopes).all()
    # A Keras mask is obeyed, and ends here.
    inputs = keras.Input((6, 4))
    output = layer(keras.layers.Masking()(inputs))
    assert getattr(output, "_keras_mask", None) is None
    found = keras.Model(inputs, output)(np.nan_to_num(features))
    np.testing.assert_allclose(found, expected, atol=1e-6)


@not_on_jax
def test_half_precision_and_extreme_temperature():
    features = ops.cast(1e3 * features_of(), "bfloat16")
    found = built("dot", 1e6)(features)
    assert keras.backend.standardize_dtype(found.dtype) == "float32"
    np.testing.assert_allclose(ops.sum(found, 1), np.ones(3), atol=1e-6)
