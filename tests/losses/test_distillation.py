"""A student learns a teacher's embeddings and searches its gallery."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.losses.metric_loss import StepParts

LABELS = np.repeat(np.arange(4), 3)


def rows(seed, size=6):
    found = np.random.default_rng(seed).normal(size=(12, size))
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return found.astype("float32")


def student(size=6, **options):
    keras.utils.set_random_seed(0)
    normalize = gsp.layers.EmbeddingNormalization()
    encoder = [keras.Input((5,)), keras.layers.Dense(size), normalize]
    return gsp.models.MetricLearner(keras.Sequential(encoder), **options)


def images():
    return np.random.default_rng(3).normal(size=(12, 5)).astype("float32")


def test_terms_are_those_of_the_equation():
    s, t = rows(0), rows(1)
    loss = gsp.losses.DistillationLoss(regression=0.5, relational=3.0)
    expected = []
    for i in range(12):
        errors = [
            np.linalg.norm(s[i] - s[j]) - np.linalg.norm(t[i] - t[j])
            for j in range(12)
        ]
        squares = sum((s[i] - t[i]) ** 2)
        expected.append(0.5 * squares + 3.0 * np.mean(np.square(errors)))
    np.testing.assert_allclose(loss.call(t, s), expected, rtol=1e-4)
    np.testing.assert_allclose(loss(t, s), np.mean(expected), rtol=1e-4)
    np.testing.assert_allclose(loss(t, t), 0.0, atol=1e-6)
    # Without regression, distances are all that a rotation must keep.
    rotation, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(6, 6)))
    loss = gsp.losses.DistillationLoss(regression=0.0, relational=1.0)
    np.testing.assert_allclose(loss(t, t @ rotation), 0.0, atol=1e-5)


def test_the_metric_loss_is_against_the_teachers_gallery():
    inner = gsp.losses.TripletLoss(0.2)
    loss = gsp.losses.DistillationLoss(inner, regression=0.0, metric=2.0)
    s, t = rows(0), rows(1)
    found = loss.training_loss(StepParts(LABELS, s, teacher=t))
    expected = 2.0 * float(inner.between(LABELS, s, LABELS, t))
    np.testing.assert_allclose(float(found), expected, rtol=1e-6)


@pytest.mark.parametrize("is_metric", [False, True])
def test_a_student_comes_near_its_teacher(is_metric, tmp_path):
    teacher = images() @ np.random.default_rng(4).normal(size=(5, 6))
    teacher /= np.linalg.norm(teacher, axis=1, keepdims=True)
    teacher = teacher.astype("float32")
    inner = gsp.losses.ContrastiveLoss() if is_metric else None
    loss = gsp.losses.DistillationLoss(inner, relational=1.0)
    labels = {"label": LABELS, "teacher": teacher} if is_metric else teacher
    learner = student(batch_chunks=2)
    learner.compile(keras.optimizers.Adam(0.1), loss=loss, run_eagerly=True)
    before = np.square(learner(images()) - teacher).sum()
    learner.fit(images(), labels, batch_size=12, epochs=8, verbose=0)
    after = np.square(learner(images()) - teacher).sum()
    assert after < 0.5 * before
    learner.save(tmp_path / "learner.keras")
    loaded = keras.saving.load_model(tmp_path / "learner.keras")
    assert loaded.loss.get_config() == loss.get_config()


def test_errors():
    kind, inner = gsp.losses.DistillationLoss, gsp.losses.ContrastiveLoss()
    size = r"encoder's embedding size, 4. Received: shape \(12, 6\). Project"
    for learner, loss, message in (
        (student(size=4), kind(), size),
        (student(), kind(inner), "must be a dictionary of `label`"),
    ):
        learner.compile("sgd", loss=loss, run_eagerly=True)
        with pytest.raises(ValueError, match=message):
            learner.fit(images(), rows(1), batch_size=12, verbose=0)
    with pytest.raises(TypeError, match="`loss` must be a pair loss"):
        kind(gsp.losses.ProxyNCALoss())
    with pytest.raises(ValueError, match="relational=-1"):
        kind(relational=-1.0)
    with pytest.raises(ValueError, match="must be above 0"):
        kind(regression=0.0)
    for loss, metric in ((None, 1.0), (inner, 0.0)):
        with pytest.raises(ValueError, match="exactly when `metric`"):
            kind(loss, metric=metric)
