"""Labels of any kind reach the backend as numbers that it can compare."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from tests.callbacks.test_retrieval_evaluation import Batches

IMAGES = np.random.default_rng(0).normal(size=(8, 5)).astype("float32")
CODES = np.repeat(np.arange(4), 2)
ON_JAX = keras.backend.backend() == "jax"

LABELS = {
    "int64": CODES * 2**32 + 1,
    "uint64": CODES.astype("uint64") * 2**33,
    "float64": CODES * 2.0**30 + 2.0**40,
    "strings": np.array(["ant", "bee", "cat", "dog"])[CODES],
    "bytes": np.array([b"ant", b"bee", b"cat", b"dog"])[CODES],
    "list": CODES.tolist(),
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


@pytest.mark.parametrize("parts", [{}, {"memory": True}, {"proxies": True}])
def test_nan_among_labels_is_refused_before_training(parts):
    layers = {
        "memory": gsp.layers.EmbeddingMemory(16),
        "proxies": gsp.layers.ClassProxies(4),
    }
    learner = learner_of(**{name: layers[name] for name in parts})
    before = learner.get_weights()
    labels = np.where(CODES == 3, np.nan, CODES)
    for use in (learner.fit, learner.train_on_batch):
        with pytest.raises(ValueError, match="NaN|nan"):
            use(IMAGES, labels)
    with pytest.raises(ValueError, match="NaN. Received: 2 NaN of 8"):
        learner.evaluate(IMAGES, labels)
    np.testing.assert_equal(learner.get_weights(), before)


def test_an_ignored_label_stays_ignored():
    loss = gsp.losses.ContrastiveLoss(ignore_class=-1)
    labels = np.where(CODES == 2, -1, CODES)
    expected = fit(labels, learner_of(loss))
    large = np.where(CODES == 2, -1, CODES + 2**40)
    assert fit(large, learner_of(loss)) == pytest.approx(expected, rel=1e-6)


def proxied():
    return learner_of(proxies=gsp.layers.ClassProxies(4))


def test_labels_without_proxies_are_refused_before_training():
    learner = proxied()
    before = learner.get_weights()
    for labels, received in [
        (CODES + 1, "4"),
        (CODES - 1, "-1"),
        (LABELS["strings"], "'ant'"),
        (LABELS["int64"], str(LABELS["int64"][2])),
    ]:
        match = rf"num_classes=4.*Received: .*{received}"
        with pytest.raises(ValueError, match=match):
            fit(labels, learner)
    np.testing.assert_equal(learner.get_weights(), before)


def batches(labels):
    tf = pytest.importorskip("tensorflow")
    return tf.data.Dataset.from_tensors((IMAGES, labels))


def test_labels_of_a_data_set_without_proxies_are_refused_at_the_first_step():
    assert fit(CODES, proxied()) > 0.0
    learner = proxied()
    with pytest.raises((ValueError, RuntimeError), match=r"\[0, "):
        learner.fit(batches(CODES + 1), verbose=0)
    assert all(np.isfinite(weight).all() for weight in learner.get_weights())
    # Unseen classes may be validated.
    learner.evaluate(batches(CODES + 100), verbose=0)


def test_a_data_set_of_names_leaves_the_weights_alone():
    learner = learner_of()
    names = batches(LABELS["strings"])
    for use in (learner.fit, learner.evaluate):
        with pytest.raises(TypeError, match="Received: string"):
            use(names, verbose=0)
    assert learner.predict(names, verbose=0).shape == (8, 4)
    assert all(np.isfinite(weight).all() for weight in learner.get_weights())


def test_a_data_set_without_labels_is_refused_by_its_structure():
    tf = pytest.importorskip("tensorflow")
    learner = learner_of()
    for batch, received in [
        ({"image": IMAGES, "label": CODES}, r"keys \['image', 'label'\]"),
        (IMAGES, "Received: "),
    ]:
        tensors = tf.data.Dataset.from_tensors(batch)
        for data in (tensors, Batches(batch)):
            with pytest.raises(
                TypeError, match=rf"\(images, labels\).*{received}"
            ):
                learner.fit(data, verbose=0)
        with pytest.raises(TypeError, match="no labels"):
            learner.fit(batch, verbose=0)


@pytest.mark.parametrize("labels", [CODES, CODES[:, None]])
def test_single_images_are_no_batches(labels):
    tf = pytest.importorskip("tensorflow")
    data = tf.data.Dataset.from_tensor_slices((IMAGES, labels))
    learner, match = learner_of(), r"batch\(64\)"
    with pytest.raises(ValueError, match=match):
        learner.fit(data, verbose=0)
    with pytest.raises(ValueError, match=match):
        learner.fit(IMAGES, CODES, validation_data=data, verbose=0)
    with pytest.raises(ValueError, match=match):
        gsp.callbacks.RetrievalEvaluation(data)


def test_labels_that_need_codes_are_refused_for_one_batch():
    learner = learner_of()
    # A code of its own for each batch would join classes in a memory.
    for kind in ("int64", "uint64", "float64", "strings"):
        for use in (learner.train_on_batch, learner.test_on_batch):
            with pytest.raises((TypeError, ValueError), match="codes|unique"):
                use(IMAGES, LABELS[kind])
    found = learner.train_on_batch(IMAGES, CODES)
    assert found == pytest.approx(fit(CODES), rel=1e-6)
    with pytest.raises(ValueError, match="num_classes=4"):
        proxied().train_on_batch(IMAGES, CODES + 1)
    proxied().test_on_batch(IMAGES, CODES + 1)


@pytest.mark.skipif(not ON_JAX, reason="JAX has labels of 32 bits")
def test_a_data_set_of_large_labels_is_refused_on_jax():
    with pytest.raises(ValueError, match="32 bits"):
        learner_of().fit(batches(CODES + 2**40), verbose=0)
