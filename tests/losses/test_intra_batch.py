"""Classification with messages within a batch: value, training, errors."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.losses.metric_loss import StepParts
from tests.losses.test_every_loss import encoder, images

LABELS = np.array([0, 2, 1, 0, 2])


def parts_of(num_classes=3):
    embeddings = np.random.default_rng(0).normal(size=(5, 4))
    classifier = gsp.layers.IntraBatchClassifier(num_classes, num_heads=2)
    embeddings = embeddings.astype("float32")
    classifier.build(embeddings.shape)
    return StepParts(
        labels=LABELS, embeddings=embeddings, loss_layer=classifier
    )


def cross_entropies(logits, smoothing):
    """A term a sample, by loops."""
    terms = []
    for row, label in zip(np.asarray(logits, "float64"), LABELS, strict=True):
        logs = [x - np.log(sum(np.exp(y) for y in row)) for x in row]
        wanted = [smoothing / len(row)] * len(row)
        wanted[label] += 1.0 - smoothing
        terms.append(-sum(w * x for w, x in zip(wanted, logs, strict=True)))
    return np.array(terms)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_equals_a_loop(smoothing):
    parts = parts_of()
    loss = gsp.losses.IntraBatchLoss(smoothing)
    plain, refined = parts.loss_layer(parts.embeddings)
    plain = cross_entropies(plain, smoothing)
    terms = cross_entropies(refined, smoothing) + plain
    np.testing.assert_allclose(
        loss.training_loss(parts), terms.mean(), rtol=1e-5
    )
    np.testing.assert_allclose(
        loss.validation_loss(parts), plain.mean(), rtol=1e-5
    )
    assert float(loss.inside_loss(parts, np.zeros(5, bool))) == 0.0


def test_inside_a_half_no_message_comes_from_the_other():
    """(2.10) of XML: a half is to the loss as a batch."""
    parts = parts_of()
    loss = gsp.losses.IntraBatchLoss()
    first = np.array([True, False, True, False, False])
    for inside in (first, ~first):
        half = StepParts(
            labels=LABELS[inside],
            embeddings=parts.embeddings[inside],
            loss_layer=parts.loss_layer,
        )
        np.testing.assert_allclose(
            loss.inside_loss(parts, inside), loss.training_loss(half), rtol=1e-5
        )


def test_the_classifier_refines_by_messages():
    parts = parts_of()
    classifier = parts.loss_layer
    plain, refined = classifier(parts.embeddings)
    again = classifier.messages(parts.embeddings)
    kernel, bias = (np.asarray(w) for w in classifier.refined_weights)
    np.testing.assert_allclose(refined, again @ kernel + bias, atol=1e-5)
    # In half precision it classifies in float32.
    rounded = gsp.layers.IntraBatchClassifier(3, num_heads=2, dtype="bfloat16")
    rounded.build(parts.embeddings.shape)
    rounded.set_weights(classifier.get_weights())
    found = rounded(parts.embeddings)
    for one, other in zip(found, (plain, refined), strict=True):
        assert keras.backend.standardize_dtype(one.dtype) == "float32"
        np.testing.assert_allclose(one, other, atol=0.05)


@pytest.mark.parametrize("is_cross_batch", [False, True])
def test_trains_alone_and_inside_cross_batch_learning(is_cross_batch):
    keras.config.set_dtype_policy("mixed_bfloat16")
    loss = gsp.losses.IntraBatchLoss()
    learner = gsp.models.MetricLearner(
        encoder(),
        loss_layer=gsp.layers.IntraBatchClassifier(3, num_heads=5),
        regularizer=gsp.losses.CrossBatchLoss(loss) if is_cross_batch else None,
        regularizer_weight=0.5,
        seed=0,
    )
    learner.compile(keras.optimizers.SGD(0.1), loss=loss, run_eagerly=True)
    batch = images(), np.arange(12) % 3
    values = [learner.train_on_batch(*batch) for _ in range(5)]
    assert values[-1] < values[0]
    assert np.isfinite(learner.test_on_batch(*batch))


def test_errors():
    parts = parts_of(num_classes=2)
    with pytest.raises(ValueError, match="`labels` must be"):
        gsp.losses.IntraBatchLoss().training_loss(parts)
    with pytest.raises(ValueError, match="`num_heads` must divide"):
        gsp.layers.IntraBatchClassifier(3, num_heads=3).build((None, 4))
    # The layer has to be there, and nothing else.
    memory = {"memory": gsp.layers.EmbeddingMemory(8)}
    memory["loss_layer"] = gsp.layers.IntraBatchClassifier(3, num_heads=5)
    for options, message in (({}, "loss_layer"), (memory, "memory")):
        learner = gsp.models.MetricLearner(encoder(), **options)
        with pytest.raises(ValueError, match=message):
            learner.compile("sgd", loss=gsp.losses.IntraBatchLoss())
