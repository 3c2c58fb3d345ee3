"""Cross-batch loss: every pair loss, applied to each half by itself."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_gsp as gsp
from keras_gsp.losses.cross_batch import CrossBatchLoss
from tests.compiled import compiled
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
    return sum(
        float(
            pair_loss.between(
                labels[half],
                expressed[half],
                labels[half],
                expressed[half],
                excluded=np.eye(half.sum(), dtype=bool),
            )
        )
        for half in (first_half, ~first_half)
    )


@pytest.mark.usefixtures("double_precision")
@every_pair_loss
def test_value_and_gradient_of_the_sum_over_the_halves(pair_loss):
    labels, *parts = batch_of()
    found = CrossBatchLoss(pair_loss, RIDGE).compute(labels, *parts)
    expected = naive_loss(pair_loss, labels, *parts)
    assert expected > 0.01
    np.testing.assert_allclose(float(found), expected, rtol=1e-10)
    joint = CrossBatchLoss(pair_loss, RIDGE, reconstruction_weight=2.0)
    errors = np.sum((naive_express(*parts) - parts[1]) ** 2, axis=1)
    np.testing.assert_allclose(
        joint.compute(labels, *parts), expected + 2.0 * np.mean(errors)
    )
    # Gradients equal central differences.
    labels, histograms, embeddings, first_half = batch_of(3)
    loss = CrossBatchLoss(pair_loss, RIDGE, reconstruction_weight=0.3)

    def scalar(histograms, embeddings):
        return loss.compute(labels, histograms, embeddings, first_half)

    # Differences with step 1e-6 carry about nine digits.
    assert slope_errors(scalar, histograms, embeddings) < 1e-6


def test_compiled_equals_eager_and_half_precision_is_float32():
    labels, *parts, first_half = batch_of()
    loss = CrossBatchLoss(PAIR_LOSSES["multi-similarity"])
    expected = float(loss.compute(labels, *parts, first_half))
    exact = [part.astype("float32") for part in parts]
    found = compiled(loss.compute)(labels, *exact, first_half)
    np.testing.assert_allclose(float(found), expected, rtol=1e-4)
    rounded = [ops.cast(part, "bfloat16") for part in parts]
    found = loss.compute(labels, *rounded, first_half)
    assert keras.backend.standardize_dtype(found.dtype) == "float32"
    # The inputs were rounded to eight bits.
    np.testing.assert_allclose(float(found), expected, rtol=0.1)


def test_degenerate_batches_are_finite():
    labels, histograms, embeddings, first_half = batch_of()
    loss = CrossBatchLoss(PAIR_LOSSES["triplet"], reconstruction_weight=0.1)
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


def test_only_equality_of_labels_counts_and_halves_are_those_of_the_seed():
    labels, *parts = batch_of()
    loss = CrossBatchLoss(PAIR_LOSSES["triplet"], seed=4)
    # The loss numbers the classes by their first samples, in which order
    # the draws go to them anyway.
    drawn = gsp.ops.class_disjoint_halves(labels, seed=4)
    found = loss.compute(labels, *parts[:2])
    expected = loss.compute(labels, *parts[:2], drawn)
    np.testing.assert_allclose(float(found), float(expected), rtol=1e-6)
    expected = float(loss.compute(labels, *parts))
    large = labels + 2_000_000_000
    for renamed in (labels.astype("float32") / 4.0, labels[:, None], large):
        assert float(loss.compute(renamed, *parts)) == expected


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        ([3] * 11, ValueError, "at least two classes"),
        ([np.nan, *range(10)], ValueError, "`labels` must not be NaN"),
        (["a"] * 11, TypeError, "`labels` must be numbers"),
        ([0, 1], ValueError, "`labels` and `histograms`"),
    ],
)
def test_bad_labels_are_refused(labels, error, message):
    _, histograms, embeddings, _ = batch_of()
    loss = CrossBatchLoss(PAIR_LOSSES["contrastive"])
    with pytest.raises(error, match=message):
        loss.compute(np.array(labels), histograms, embeddings)
    with pytest.raises(ValueError, match="`histograms` and `targets`"):
        loss.compute(np.arange(11), histograms, embeddings[1:])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"pair_loss": "triplet"}, TypeError, "must be a pair loss"),
        ({"ridge": 0}, ValueError, "`ridge` must be.*ridge=0"),
        ({"reconstruction_weight": -1.0}, ValueError, "must be"),
        ({"seed": 1.5}, TypeError, "`seed` must be an int"),
    ],
)
def test_bad_arguments_are_refused(arguments, error, message):
    arguments = {"pair_loss": PAIR_LOSSES["contrastive"]} | arguments
    with pytest.raises(error, match=message):
        CrossBatchLoss(**arguments)
