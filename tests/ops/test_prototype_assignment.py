"""Soft and hard histograms against loops over features, and Lemma 2.1."""

from functools import partial

import keras
import numpy as np
import pytest
from keras import ops

from keras_gsp.ops.covering import covering_radius, greedy_k_center
from keras_gsp.ops.prototype_assignment import hard_histogram, soft_histogram
from tests.compiled import on_tensorflow
from tests.directional_slopes import slope_errors
from tests.gradients import gradients

soft = partial(soft_histogram, inverse_temperature=10.0)
both = pytest.mark.parametrize("function", [soft, hard_histogram])
affinities = pytest.mark.parametrize("affinity", ["dot", "l2"])


def features_and_prototypes(spatial=(2, 3)):
    rng = np.random.default_rng(0)
    return rng.normal(size=(3, *spatial, 4)), rng.normal(size=(5, 4))


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
        found = list(naive_affinities(image, prototypes, affinity))
        for values in found:
            row[np.argmax(values)] += 1.0 / len(found)
    return rows


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
        hard = hard_histogram(features, prototypes, affinity=affinity)
        expected = naive_hard(features, prototypes, affinity)
        np.testing.assert_allclose(hard, expected, atol=1e-6)


@on_tensorflow
@affinities
def test_soft_histogram_tends_to_the_hard_one(affinity):
    features, prototypes = features_and_prototypes()
    found = soft_histogram(
        features, prototypes, inverse_temperature=1e4, affinity=affinity
    )
    hard = hard_histogram(features, prototypes, affinity=affinity)
    np.testing.assert_allclose(found, hard, atol=1e-5)


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
@both
def test_masked_features_do_not_count_even_when_nan(function, affinity):
    features, prototypes = features_and_prototypes(spatial=(6,))
    mask = np.ones((3, 6), bool)
    mask[:, 4:] = mask[1] = False
    features[:, 4:] = np.nan
    found = np.array(
        function(features, prototypes, affinity=affinity, mask=mask)
    )
    expected = function(features[:, :4], prototypes, affinity=affinity)
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


def errors_and_radii(features, prototypes, affinity):
    histograms = hard_histogram(features, prototypes, affinity=affinity)
    averages = features.mean(axis=1)
    radii = [float(covering_radius(image, prototypes)) for image in features]
    errors = np.asarray(histograms) @ prototypes - averages
    return np.linalg.norm(errors, axis=1), np.array(radii)


@on_tensorflow
def test_lemma_needs_the_nearest_prototype_or_equal_norms():
    for seed in range(3):
        rng = np.random.default_rng(seed)
        features = np.abs(rng.normal(size=(10, 40, 8)))
        features *= rng.lognormal(sigma=1.0, size=(10, 40, 1))
        pool = features.reshape(-1, 8)
        prototypes = pool[np.asarray(greedy_k_center(pool, pool[:1], 24))]
        equal_norms = prototypes / np.linalg.norm(
            prototypes, axis=1, keepdims=True
        )
        for used, affinity in ((prototypes, "l2"), (equal_norms, "dot")):
            errors, radii = errors_and_radii(features, used, affinity)
            assert (errors <= radii * (1.0 + 1e-5)).all()
    line, features = np.array([[0.0], [0.5], [1.0]]), np.full((1, 4, 1), 0.2)
    # The prototypes cover [0, 1] with radius 0.25.
    errors, _ = errors_and_radii(features, line, "dot")
    np.testing.assert_allclose(errors, [0.8], atol=1e-6)


@on_tensorflow
@both
def test_wrong_arguments_are_refused(function):
    features, prototypes = features_and_prototypes()
    with pytest.raises(ValueError, match="`affinity` must.*affinity='cos'"):
        function(features, prototypes, affinity="cos")
    with pytest.raises(ValueError, match=r"`features` must.*\(5, 4\)"):
        function(prototypes, prototypes)
