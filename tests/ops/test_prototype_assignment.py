"""Soft and hard histograms against loops over features, and Lemma 2.1."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_gsp.ops.covering import covering_radius, greedy_k_center
from keras_gsp.ops.prototype_assignment import (
    hard_histogram,
    prototype_combination,
    soft_histogram,
)
from tests.directional_slopes import slope_errors
from tests.gradients import gradients


def features_and_prototypes(seed=0, batch=3, spatial=(2, 3), channels=4):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(batch, *spatial, channels)), rng.normal(
        size=(5, channels)
    )


def naive_affinities(image, prototypes, affinity):
    for feature in image.reshape(-1, image.shape[-1]):
        if affinity == "dot":
            yield np.array([p @ feature for p in prototypes])
        else:
            yield np.array([-np.linalg.norm(p - feature) for p in prototypes])


def naive_soft(features, prototypes, inverse_temperature, affinity):
    rows = []
    for image in features:
        shares = [
            np.exp(inverse_temperature * s)
            for s in naive_affinities(image, prototypes, affinity)
        ]
        rows.append(np.mean([s / s.sum() for s in shares], axis=0))
    return np.array(rows)


def naive_hard(features, prototypes, affinity):
    rows = np.zeros((len(features), len(prototypes)))
    for row, image in zip(rows, features, strict=True):
        affinities = list(naive_affinities(image, prototypes, affinity))
        for values in affinities:
            row[np.argmax(values)] += 1.0 / len(affinities)
    return rows


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("affinity", ["dot", "l2"])
@pytest.mark.parametrize("spatial", [(2, 3), (7,), (1,)])
def test_soft_histogram_equals_naive_loop(affinity, spatial):
    features, prototypes = features_and_prototypes(spatial=spatial)
    found = soft_histogram(
        features, prototypes, inverse_temperature=3.0, affinity=affinity
    )
    expected = naive_soft(features, prototypes, 3.0, affinity)
    np.testing.assert_allclose(np.asarray(found), expected, atol=1e-10)


@pytest.mark.parametrize("affinity", ["dot", "l2"])
def test_hard_histogram_equals_naive_loop(affinity):
    features, prototypes = features_and_prototypes()
    found = hard_histogram(features, prototypes, affinity=affinity)
    expected = naive_hard(features, prototypes, affinity)
    np.testing.assert_allclose(np.asarray(found), expected, atol=1e-6)


@pytest.mark.parametrize("affinity", ["dot", "l2"])
def test_soft_histogram_becomes_hard_when_cold(affinity):
    features, prototypes = features_and_prototypes()
    soft = soft_histogram(
        features, prototypes, inverse_temperature=1e4, affinity=affinity
    )
    hard = hard_histogram(features, prototypes, affinity=affinity)
    np.testing.assert_allclose(np.asarray(soft), np.asarray(hard), atol=1e-5)


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("affinity", ["dot", "l2"])
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


@pytest.mark.parametrize("affinity", ["dot", "l2"])
@pytest.mark.parametrize("function", [soft_histogram, hard_histogram])
def test_masked_features_do_not_count_even_when_nan(function, affinity):
    features, prototypes = features_and_prototypes(spatial=(6,))
    mask = np.ones((3, 6), bool)
    mask[:, 4:] = False
    features[:, 4:] = np.nan
    found = function(features, prototypes, affinity=affinity, mask=mask)
    expected = function(features[:, :4], prototypes, affinity=affinity)
    np.testing.assert_allclose(
        np.asarray(found), np.asarray(expected), atol=1e-6
    )


def test_masked_nan_reaches_no_gradient():
    features, prototypes = features_and_prototypes(spatial=(6,))
    mask = np.arange(6)[None, :] < np.array([4, 6, 3])[:, None]
    features[~mask] = np.nan

    def scalar(features, prototypes):
        histograms = soft_histogram(features, prototypes, mask=mask)
        return ops.sum(ops.square(histograms))

    for found in gradients(scalar, features, prototypes):
        assert np.isfinite(found).all()


def test_mask_of_a_feature_map_is_flattened_alike():
    features, prototypes = features_and_prototypes()
    mask = np.random.default_rng(0).random((3, 2, 3)) < 0.6
    mask[:, 0, 0] = True
    found = soft_histogram(features, prototypes, mask=mask)
    expected = soft_histogram(
        features.reshape(3, 6, 4), prototypes, mask=mask.reshape(3, 6)
    )
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def test_rows_sum_to_one_and_to_zero_when_all_is_masked():
    features, prototypes = features_and_prototypes(spatial=(6,))
    mask = np.ones((3, 6), bool)
    mask[1] = False
    for function in (soft_histogram, hard_histogram):
        found = np.asarray(function(features, prototypes, mask=mask))
        np.testing.assert_allclose(found.sum(axis=1), [1, 0, 1], atol=1e-6)


def test_order_of_the_features_is_irrelevant():
    features, prototypes = features_and_prototypes(spatial=(6,))
    order = np.random.default_rng(0).permutation(6)
    found = soft_histogram(features[:, order], prototypes)
    expected = soft_histogram(features, prototypes)
    np.testing.assert_allclose(
        np.asarray(found), np.asarray(expected), atol=1e-6
    )


def test_extreme_temperature_is_finite():
    features, prototypes = features_and_prototypes()
    found = soft_histogram(1e3 * features, prototypes, inverse_temperature=1e6)
    assert np.isfinite(np.asarray(found)).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_computed_in_float32(dtype):
    features, prototypes = features_and_prototypes()
    found = soft_histogram(ops.cast(features, dtype), prototypes)
    assert keras.backend.standardize_dtype(found.dtype) == "float32"
    np.testing.assert_allclose(
        np.asarray(found).sum(axis=1), np.ones(3), atol=1e-6
    )


def test_combination_equals_naive_loop():
    _, prototypes = features_and_prototypes()
    histograms = np.random.default_rng(0).dirichlet(np.ones(5), size=3)
    expected = [
        sum(z * p for z, p in zip(row, prototypes, strict=True))
        for row in histograms
    ]
    found = prototype_combination(histograms, prototypes)
    np.testing.assert_allclose(np.asarray(found), expected, atol=1e-6)


def errors_and_radii(features, prototypes, affinity):
    histograms = hard_histogram(features, prototypes, affinity=affinity)
    combined = np.asarray(prototype_combination(histograms, prototypes))
    averages = features.mean(axis=1)
    radii = [float(covering_radius(image, prototypes)) for image in features]
    return np.linalg.norm(combined - averages, axis=1), np.array(radii)


def uneven_features(seed):
    rng = np.random.default_rng(seed)
    features = np.abs(rng.normal(size=(10, 40, 8)))
    features *= rng.lognormal(sigma=1.0, size=(10, 40, 1))
    pool = features.reshape(-1, 8)
    chosen = greedy_k_center(pool, pool[:1], 24)
    return features, pool[np.asarray(chosen)]


@pytest.mark.parametrize("seed", range(3))
def test_lemma_holds_for_the_nearest_prototype(seed):
    features, prototypes = uneven_features(seed)
    errors, radii = errors_and_radii(features, prototypes, "l2")
    assert (errors <= radii * (1.0 + 1e-5)).all()


@pytest.mark.parametrize("seed", range(3))
def test_lemma_holds_for_the_dot_product_and_equal_norms(seed):
    features, prototypes = uneven_features(seed)
    prototypes /= np.linalg.norm(prototypes, axis=1, keepdims=True)
    errors, radii = errors_and_radii(features, prototypes, "dot")
    assert (errors <= radii * (1.0 + 1e-5)).all()


def test_lemma_fails_for_the_dot_product_and_unequal_norms():
    prototypes = np.array([[0.0], [0.5], [1.0]])
    features = np.full((1, 4, 1), 0.2)
    errors, _ = errors_and_radii(features, prototypes, "dot")
    # The prototypes cover [0, 1] with radius 0.25.
    np.testing.assert_allclose(errors, [0.8], atol=1e-6)


@pytest.mark.parametrize("function", [soft_histogram, hard_histogram])
def test_wrong_arguments_are_refused(function):
    features, prototypes = features_and_prototypes()
    with pytest.raises(ValueError, match="`affinity` must.*affinity='cos'"):
        function(features, prototypes, affinity="cos")
    with pytest.raises(ValueError, match=r"`features` must.*\(5, 4\)"):
        function(prototypes, prototypes)
