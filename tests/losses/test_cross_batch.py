"""Cross-batch loss: every pair loss, applied to each half by itself."""

import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.losses.cross_batch import CrossBatchLoss
from tests.gradients import gradients, slope_errors

RIDGE = 0.05
PAIR_LOSSES = {
    "contrastive": gsp.losses.ContrastiveLoss(normalization="ball"),
    "triplet": gsp.losses.TripletLoss(0.2),
    "multi-similarity": gsp.losses.MultiSimilarityLoss(mining_margin=0.1),
}
every_pair_loss = pytest.mark.parametrize(
    "pair_loss", PAIR_LOSSES.values(), ids=PAIR_LOSSES.keys()
)


def batch_of(seed=0, num_prototypes=5, size=3):
    """Halves of four and seven samples, classes and halves interleaved."""
    rng = np.random.default_rng(seed)
    labels = np.array([3, 8, 5, 8, 3, 5, 8, 1, 1, 8, 5])
    first_half = np.isin(labels, [3, 1])
    histograms = rng.dirichlet(np.ones(num_prototypes), size=len(labels))
    return labels, histograms, rng.normal(size=(len(labels), size)), first_half


def naive_express(histograms, embeddings, first_half):
    expressed = np.zeros_like(embeddings)
    for b in range(len(embeddings)):
        others = first_half != first_half[b]
        z, y = histograms[others].T, embeddings[others].T
        prototypes = y @ z.T @ np.linalg.inv(z @ z.T + RIDGE * np.eye(len(z)))
        expressed[b] = prototypes @ histograms[b]
    return expressed


def naive_loss(pair_loss, labels, histograms, embeddings, first_half):
    """(2.10): the halves cut out, each one given to the loss as a batch."""
    expressed = naive_express(histograms, embeddings, first_half)
    total = 0.0
    for half in (first_half, ~first_half):
        given = labels[half], expressed[half]
        diagonal = np.eye(half.sum(), dtype=bool)
        total += float(pair_loss.between(*given, *given, excluded=diagonal))
    return total


@pytest.mark.usefixtures("double_precision")
@every_pair_loss
def test_value_and_gradient_of_the_sum_over_the_halves(pair_loss):
    labels, *parts = batch_of()
    expected = naive_loss(pair_loss, labels, *parts)
    assert expected > 0.01
    loss = CrossBatchLoss(pair_loss, RIDGE)
    found = float(loss.compute(labels, *parts))
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    # Not given, the halves are those of the seed.
    seeded = CrossBatchLoss(pair_loss, RIDGE, seed=4)
    drawn = gsp.ops.class_disjoint_halves(labels, seed=4)
    found, expected = (
        float(seeded.compute(labels, *parts[:2], half))
        for half in (None, drawn)
    )
    assert found == expected
    labels, *inputs, half = batch_of(3)
    # Differences with step 1e-6 carry about nine digits.
    errors = slope_errors(lambda *x: loss.compute(labels, *x, half), *inputs)
    assert errors < 1e-6


def test_degenerate_batches_are_finite():
    labels, histograms, embeddings, first_half = batch_of()
    loss = CrossBatchLoss(PAIR_LOSSES["triplet"])
    cases = {
        "duplicates": (labels, np.full_like(histograms, 0.2), first_half),
        "no positives": (np.arange(11), histograms, first_half),
        "empty half": (labels, histograms, np.ones(11, bool)),
        "half of one": (labels, histograms, np.arange(11) == 7),
        "two samples": ([0, 1], histograms[:2], np.array([True, False])),
    }
    for labels, histograms, first_half in cases.values():

        def scalar(histograms, embeddings, labels=labels, half=first_half):
            return loss.compute(labels, histograms, embeddings, half)

        embeddings = embeddings[: len(histograms)]
        inputs = histograms.astype("float32"), embeddings.astype("float32")
        assert np.isfinite(float(scalar(*inputs)))
        for gradient in gradients(scalar, *inputs):
            assert np.isfinite(gradient).all()
