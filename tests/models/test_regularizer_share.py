"""The logged share of the regularizer in the gradient."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from tests.gradients import gradients
from tests.models.test_batch_chunks import IMAGES, LABELS, zero_shot

SHARE = {"log_regularizer_share": True}


def make_learner(batch_chunks=1, **arguments):
    keras.utils.set_random_seed(1)
    backbone = keras.Sequential(
        [keras.Input((6, 6, 3)), keras.layers.Conv2D(5, 3, activation="relu")]
    )
    encoder = gsp.models.build_encoder(
        backbone,
        embedding_size=4,
        pooling=gsp.layers.GeneralizedSumPooling(
            3, return_histogram=True, name="pooling"
        ),
    )
    learner = gsp.models.MetricLearner(
        encoder,
        seed=1,
        batch_chunks=batch_chunks,
        **(zero_shot() | {"regularizer_weight": 0.25} | SHARE | arguments),
    )
    learner.compile("sgd", loss=gsp.losses.MultiSimilarityLoss())
    return learner


def expected_share(learner):
    """Both gradients at the projection, from the layers by hand."""
    encoder, parts = learner.encoder, []
    half = gsp.ops.class_disjoint_halves(
        LABELS[:24], keras.random.SeedGenerator(1)
    )
    projection = encoder.get_layer("projection")
    features = keras.Model(encoder.inputs, projection.input)(IMAGES[:24])
    kernel, bias = (keras.ops.convert_to_numpy(w) for w in projection.weights)
    table = keras.ops.convert_to_numpy(learner.class_embeddings.embeddings)
    pooling = encoder.get_layer("pooling")

    def outputs(kernel, bias):
        projected = keras.ops.conv(features, kernel) + bias
        return pooling(projected)

    def metric(kernel, bias):
        embeddings, _ = outputs(kernel, bias)
        loss = gsp.losses.MultiSimilarityLoss()
        return 0.75 * loss(LABELS[:24], embeddings)

    def regularizer(kernel, bias):
        _, histograms = outputs(kernel, bias)
        loss = gsp.losses.ZeroShotLoss()
        return 0.25 * loss.compute(LABELS[:24], histograms, table, half)

    for part in (metric, regularizer):
        found = gradients(part, kernel, bias)
        parts.append(np.sqrt(sum(np.sum(np.square(g)) for g in found)))
    return parts[1] / sum(parts)


@pytest.mark.parametrize("batch_chunks", [1, 4])
def test_share_is_that_of_the_gradients_at_the_projection(batch_chunks):
    learner = make_learner(batch_chunks)
    expected = expected_share(learner)
    history = learner.fit(
        IMAGES[:24], LABELS[:24], batch_size=24, shuffle=False, verbose=0
    ).history
    assert 1e-4 < expected < 0.9
    np.testing.assert_allclose(
        history["regularizer_share"], [expected], rtol=1e-3
    )


@pytest.mark.parametrize(("weight", "share"), [(0.0, 0.0), (1.0, 1.0)])
def test_share_is_nothing_or_everything_at_the_ends(weight, share):
    learner = make_learner(regularizer_weight=weight)
    logs = learner.train_on_batch(IMAGES[:24], LABELS[:24], return_dict=True)
    assert logs["regularizer_share"] == pytest.approx(share)


def test_steps_are_the_same_with_and_without_the_log():
    found = []
    for log in (True, False):
        learner = make_learner(log_regularizer_share=log)
        learner.train_on_batch(IMAGES[:24], LABELS[:24])
        found.append(learner.encoder.get_weights())
    for logged, plain in zip(*found, strict=True):
        np.testing.assert_allclose(logged, plain, atol=1e-6)


def test_share_needs_a_regularizer():
    learner = make_learner()
    with pytest.raises(ValueError, match="needs a regularizer"):
        gsp.models.MetricLearner(learner.encoder, log_regularizer_share=True)
