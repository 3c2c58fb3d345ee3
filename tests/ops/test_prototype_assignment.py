"""Soft histograms against loops over features."""

from functools import partial

import keras
import numpy as np
import pytest
from keras import ops

from keras_gsp.ops.prototype_assignment import soft_histogram
from tests.compiled import on_tensorflow
from tests.gradients import gradients, slope_errors

soft = partial(soft_histogram, inverse_temperature=10.0)
affinities = pytest.mark.parametrize("affinity", ["dot", "l2"])


def features_and_prototypes(spatial=(2, 3)):
    rng = np.random.default_rng(0)
    return rng.normal(size=(3, *spatial, 4)), rng.normal(size=(5, 4))


def naive_soft(features, prototypes, inverse_temperature, affinity):
    rows = []
    for image in features:
        shares = []
        for feature in image.reshape(-1, image.shape[-1]):
            likeness = prototypes @ feature
            if affinity == "l2":
                likeness = -np.linalg.norm(prototypes - feature, axis=1)
            powers = np.exp(inverse_temperature * likeness)
            shares.append(powers / powers.sum())
        rows.append(np.mean(shares, axis=0))
    return np.array(rows)


@pytest.mark.usefixtures("double_precision")
@affinities
def test_equal_naive_loops(affinity):
    for spatial in [(2, 3), (7,), (1,)]:
        features, prototypes = features_and_prototypes(spatial)
        found = soft_histogram(
            features, prototypes, inverse_temperature=3.0, affinity=affinity
        )
        expected = naive_soft(features, prototypes, 3.0, affinity)
        np.testing.assert_allclose(found, expected, atol=1e-10)


@pytest.mark.usefixtures("double_precision")
@affinities
def test_gradients_equal_central_differences(affinity):
    features, prototypes = features_and_prototypes()
    weights = np.random.default_rng(1).normal(size=(3, 5))

    def scalar(features, prototypes):
        histograms = soft_histogram(
            features, prototypes, inverse_temperature=2.0, affinity=affinity
        )
        return ops.sum(ops.convert_to_tensor(weights) * histograms)

    # Differences with step 1e-6 carry about nine digits.
    assert slope_errors(scalar, features, prototypes) < 1e-6


@on_tensorflow
@affinities
def test_masked_features_do_not_count_even_when_nan(affinity):
    features, prototypes = features_and_prototypes(spatial=(6,))
    mask = np.ones((3, 6), bool)
    mask[:, 4:] = mask[1] = False
    features[:, 4:] = np.nan
    found = np.array(soft(features, prototypes, affinity=affinity, mask=mask))
    expected = soft(features[:, :4], prototypes, affinity=affinity)
    np.testing.assert_allclose(found[::2], expected[::2], atol=1e-6)
    np.testing.assert_array_equal(found[1], 0.0)
    for slopes in gradients(
        lambda x, p: ops.sum(soft(x, p, affinity=affinity, mask=mask) ** 2),
        features,
        prototypes,
    ):
        assert np.isfinite(slopes).all()


@on_tensorflow
def test_half_precision_and_extreme_temperature():
    features, prototypes = features_and_prototypes()
    found = soft_histogram(
        ops.cast(1e3 * features, "bfloat16"),
        prototypes,
        inverse_temperature=1e6,
    )
    assert keras.backend.standardize_dtype(found.dtype) == "float32"
    np.testing.assert_allclose(np.sum(found, axis=1), np.ones(3), atol=1e-6)
