"""Controls of ZSR differ from it in one thing each."""

import numpy as np

import keras_gsp as gsp
from keras_gsp.losses.metric_loss import StepParts
from training.research.zero_shot_controls import (
    PooledSoftmaxLoss,
    SameHalfLoss,
)

RNG = np.random.default_rng(0)
LABELS = np.array([0, 0, 2, 2, 1, 1])
HALF = np.array([True, True, False, False, True, True])


def parts():
    return StepParts(
        labels=LABELS,
        embeddings=None,
        histograms=RNG.dirichlet(np.ones(5), size=6).astype("float32"),
        pooled=RNG.normal(size=(6, 4)).astype("float32"),
        class_embeddings=gsp.layers.ClassEmbeddings(3, 4),
        first_half=HALF,
    )


def entropy(vectors, table, scale):
    logits = scale * vectors @ table.T
    shifted = np.exp(logits - logits.max(1, keepdims=True))
    shares = shifted / shifted.sum(1, keepdims=True)
    return -np.mean(np.log(shares[np.arange(6), LABELS]))


def test_controls_differ_from_zsr_in_what_they_predict():
    step = parts()
    table = np.asarray(step.class_embeddings.embeddings)
    histograms = np.asarray(step.histograms, "float64")
    expected = np.zeros((6, 4))
    for half in (HALF, ~HALF):
        z, y = histograms[half].T, table[LABELS[half]].T
        mapping = y @ z.T @ np.linalg.inv(z @ z.T + 0.05 * np.eye(5))
        expected[half] = (mapping @ z).T
    loss = SameHalfLoss(0.05, 9.5).training_loss(step)
    np.testing.assert_allclose(loss, entropy(expected, table, 9.5), rtol=1e-3)
    loss = PooledSoftmaxLoss(scale=2.0).training_loss(step)
    expected = entropy(np.asarray(step.pooled), table, 2.0)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
