"""Whitening: PCA, learned from labels or pairs, and what is refused."""

import keras
import numpy as np
import pytest

from keras_gsp.layers import Whitening
from tests.compiled import compiled


def mixed(samples=60, size=6):
    """Correlated rows in eight classes."""
    rng = np.random.default_rng(0)
    labels = np.arange(samples) % 8
    centers = rng.normal(size=(8, size))
    rows = centers[labels] + rng.normal(size=(samples, size))
    return rows @ rng.normal(size=(size, size)) + 5.0, labels


def fitted(rows, size, *args, **options):
    layer = Whitening(size, normalization=None)
    layer.adapt(rows, *args, **options)
    return np.asarray(layer(rows))


def within_covariance(rows, labels):
    """Of deviations from the class means, by a loop."""
    total = np.zeros((rows.shape[1],) * 2)
    for one in np.unique(labels):
        members = rows[labels == one]
        for row in members - members.mean(axis=0):
            total += np.outer(row, row)
    return total / (len(rows) - len(np.unique(labels)))


def test_pca_whitens_the_leading_directions():
    rows, _ = mixed()
    found = fitted(rows, 3)
    np.testing.assert_allclose(found.mean(axis=0), 0.0, atol=1e-4)
    np.testing.assert_allclose(np.cov(found.T), np.eye(3), atol=1e-3)
    # scores of the SVD of the centered rows, whose signs are arbitrary
    left, _, _ = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    expected = left[:, :3] * np.sqrt(len(rows) - 1)
    np.testing.assert_allclose(abs(found), abs(expected), atol=1e-3)


def test_learned_whitening_whitens_classes_and_orders_by_total_variance():
    rows, labels = mixed()
    found = fitted(rows, 4, labels)
    np.testing.assert_allclose(
        within_covariance(found, labels), np.eye(4), atol=1e-3
    )
    total = np.cov(found.T)
    np.testing.assert_allclose(total, np.diag(np.diag(total)), atol=1e-3)
    ratios = np.linalg.eigvals(
        np.linalg.solve(within_covariance(rows, labels), np.cov(rows.T))
    ).real
    np.testing.assert_allclose(
        np.diag(total), np.sort(ratios)[::-1][:4], rtol=1e-3
    )
    named = fitted(rows, 4, np.array([f"class {one}" for one in labels]))
    np.testing.assert_array_equal(named, found)


def test_shrinkage_moves_the_covariance_towards_the_mean_variance():
    rows, _ = mixed()
    layer = Whitening(6, shrinkage=0.3)
    layer.adapt(rows)
    covariance = np.cov(rows.T)
    shrunk = 0.7 * covariance + 0.3 * np.trace(covariance) / 6 * np.eye(6)
    kernel = np.asarray(layer.kernel)
    np.testing.assert_allclose(kernel.T @ shrunk @ kernel, np.eye(6), atol=1e-4)
    few = rows[:5]
    layer.adapt(few)
    assert np.isfinite(layer(few)).all()


@pytest.mark.parametrize("with_labels", [False, True])
def test_at_a_shrinkage_of_one_it_is_pca(with_labels):
    rows, labels = mixed()
    layer = Whitening(2, shrinkage=1.0, normalization=None)
    layer.adapt(rows, labels if with_labels else None)
    centered = rows - rows.mean(axis=0)
    principal = centered @ np.linalg.svd(centered)[2][:2].T
    found = np.asarray(layer(rows))
    # The kernel also divides by the root of the mean variance.
    scale = np.linalg.norm(found) / np.linalg.norm(principal)
    np.testing.assert_allclose(
        np.abs(found), scale * np.abs(principal), atol=1e-4
    )


def test_outputs_are_normalized_and_equal_compiled():
    rows = mixed()[0].astype("float32")
    layer = Whitening(3, dtype="mixed_bfloat16")
    unit = rows[:, :3] / np.linalg.norm(rows[:, :3], axis=1, keepdims=True)
    np.testing.assert_allclose(layer(rows), unit, rtol=1e-5)  # Not adapted.
    layer.adapt(rows)
    assert not layer.trainable_weights
    found = layer(rows)
    assert keras.backend.standardize_dtype(found.dtype) == "float32"
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(compiled(layer.call)(rows), found, atol=1e-4)
