"""The logged share of the regularizer in the gradient."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from tests.gradients import gradients
from tests.models import test_batch_chunks as chunks

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="TensorFlow logs it"
)
IMAGES, LABELS = chunks.IMAGES[:24], chunks.LABELS[:24]


def make_learner(batch_chunks=1, **arguments):
    options = {"regularizer_weight": 0.25, "log_regularizer_share": True}
    options |= arguments
    return chunks.make_learner("pairs+zsr", batch_chunks, options=options)


def expected_share(learner):
    """Both gradients at the projection, from the layers one by one."""
    encoder, norms = learner.encoder, []
    half = gsp.ops.class_disjoint_halves(LABELS, keras.random.SeedGenerator(1))
    projection, pooling = map(encoder.get_layer, ("projection", "pooling"))
    features = keras.Model(encoder.inputs, projection.input)([IMAGES])
    kernel, bias = (keras.ops.convert_to_numpy(w) for w in projection.weights)
    table = keras.ops.convert_to_numpy(learner.class_embeddings.embeddings)

    def metric(kernel, bias):
        embeddings, _ = pooling(keras.ops.conv(features, kernel) + bias)
        return 0.75 * gsp.losses.MultiSimilarityLoss()(LABELS, embeddings)

    def regularizer(kernel, bias):
        _, histograms = pooling(keras.ops.conv(features, kernel) + bias)
        loss = gsp.losses.ZeroShotLoss()
        return 0.25 * loss.compute(LABELS, histograms, table, half)

    for part in (metric, regularizer):
        found = gradients(part, kernel, bias)
        norms.append(np.sqrt(sum(np.sum(np.square(g)) for g in found)))
    return norms[1] / sum(norms)


@pytest.mark.parametrize(
    "batch_chunks", [1, pytest.param(4, marks=pytest.mark.slow)]
)
def test_share_is_that_of_the_gradients_at_the_projection(batch_chunks):
    learner = make_learner(batch_chunks)
    expected = expected_share(learner)
    assert 1e-4 < expected < 0.9
    logs = learner.train_on_batch(IMAGES, LABELS, return_dict=True)
    np.testing.assert_allclose(logs["regularizer_share"], expected, rtol=1e-3)
    # The step itself is that without the log.
    plain = make_learner(batch_chunks, log_regularizer_share=False)
    plain.train_on_batch(IMAGES, LABELS)
    pairs = zip(learner.get_weights(), plain.get_weights(), strict=True)
    for logged, weight in pairs:
        np.testing.assert_allclose(logged, weight, atol=1e-6)

    # All or nothing at the ends.
    for weight in (0.0, 1.0):
        learner = make_learner(batch_chunks, regularizer_weight=weight)
        logs = learner.train_on_batch(IMAGES, LABELS, return_dict=True)
        assert logs["regularizer_share"] == pytest.approx(weight)
