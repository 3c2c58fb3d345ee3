"""What is particular to the cosine contrastive loss."""

import numpy as np

import keras_gsp as gsp
from tests.gradients import gradients


def test_sums_are_divided_by_anchors_not_pairs():
    embeddings = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    loss = gsp.losses.CosineContrastiveLoss(margin=0.25)
    # Positive 0-1 at cosine 0, negatives 0-2 at 1 and 1-2 at 0, both ways.
    expected = (2 * (1.0 - 1e-5) + 2 * 0.75) / 3
    value = loss([0, 0, 1], embeddings)
    np.testing.assert_allclose(value, expected, rtol=1e-6)


def test_duplicates_of_one_class_cost_nothing():
    embeddings = np.random.default_rng(0).normal(size=(1, 128))
    embeddings = np.repeat(embeddings, 3, axis=0).astype("float32")
    loss = gsp.losses.CosineContrastiveLoss()
    np.testing.assert_array_equal(loss([0, 0, 0], embeddings), 0.0)


def test_gradient_is_that_of_the_sum_without_the_margin():
    """The memory paper's code sums s, not s - margin, above the margin."""
    random = np.random.default_rng(0)
    embeddings = random.normal(size=(6, 3)).astype("float32")
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    labels = np.array([0, 0, 1, 1, 2, 2])
    loss = gsp.losses.CosineContrastiveLoss(normalization=None)
    (found,) = gradients(lambda e: loss(labels, e), embeddings)
    expected = np.zeros((6, 3))
    for i in range(6):
        for j in range(6):
            cosine = embeddings[i] @ embeddings[j]
            if i == j:
                continue
            slope = 0.0
            if labels[i] == labels[j] and cosine < 1.0 - 1e-5:
                slope = -1.0
            if labels[i] != labels[j] and cosine > 0.5:
                slope = 1.0
            expected[i] += slope * embeddings[j] / 6
            expected[j] += slope * embeddings[i] / 6
    np.testing.assert_allclose(found, expected, atol=1e-6)
