"""Labels of any kind reach the backend as numbers that it can compare."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp

IMAGES = np.random.default_rng(0).normal(size=(8, 5)).astype("float32")
CODES = np.repeat(np.arange(4), 2)

LABELS = {
    "strings": np.array(["ant", "bee", "cat", "dog"])[CODES],
    "column": CODES[:, None] + 2**40,
}


def learner_of(loss=None, **parts):
    keras.utils.set_random_seed(0)
    encoder = keras.Sequential([keras.Input((5,)), keras.layers.Dense(4)])
    learner = gsp.models.MetricLearner(encoder, **parts)
    loss = loss or gsp.losses.ContrastiveLoss()
    learner.compile(keras.optimizers.SGD(0.1), loss=loss, run_eagerly=True)
    return learner


def fit(labels, learner=None, **options):
    learner = learner or learner_of()
    options = {"batch_size": 8, "verbose": 0, "shuffle": False} | options
    return learner.fit(IMAGES, labels, **options).history["loss"][0]


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_any_kind_train_as_their_codes(kind):
    labels = LABELS[kind]
    expected = fit(CODES)
    assert expected > 0.0
    assert fit(labels) == pytest.approx(expected, rel=1e-6)
    learner, validation = learner_of(), (IMAGES, labels)
    found = learner.evaluate(*validation, 8, verbose=0)
    assert found == pytest.approx(expected, rel=1e-6)
    assert fit(CODES, learner, validation_data=validation) > 0.0


def test_a_memory_forgets_the_codes_of_other_names():
    def after(first, then):
        learner = learner_of(memory=gsp.layers.EmbeddingMemory(16))
        fit(first, learner)
        return fit(then, learner)

    names = LABELS["strings"]
    others, more = np.char.add(names, "s"), CODES + 4
    known = after(CODES, CODES)
    assert after(names, names) == pytest.approx(known, rel=1e-6)
    # New classes have no positive in the memory.
    learner = learner_of(memory=gsp.layers.EmbeddingMemory(8))
    fit(CODES, learner)
    assert fit(more, learner) == pytest.approx(after(names, others), rel=1e-6)
    assert after(names, CODES) == pytest.approx(after(names, others), rel=1e-6)


def test_an_ignored_label_stays_ignored():
    loss = gsp.losses.ContrastiveLoss(ignore_class=-1)
    labels = np.where(CODES == 2, -1, CODES)
    expected = fit(labels, learner_of(loss))
    large = np.where(CODES == 2, -1, CODES + 2**40)
    assert fit(large, learner_of(loss)) == pytest.approx(expected, rel=1e-6)
