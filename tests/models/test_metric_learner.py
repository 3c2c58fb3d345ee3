"""A metric learner adds up its parts, saves them, and refuses misfits."""

from unittest import mock

import keras
import numpy as np
import pytest
from keras import ops

import keras_gsp as gsp
from keras_gsp import layers, losses
from keras_gsp.layers.embedding_normalization import EmbeddingNormalization
from tests.compiled import first_on_jax, not_on_jax, on_tensorflow, slow_on

NUM_CLASSES = 6
ON_JAX = keras.backend.backend() == "jax"
IMAGES = np.random.default_rng(0).normal(size=(24, 8, 8, 3)).astype("float32")
LABELS = np.repeat(np.arange(NUM_CLASSES), 4)


def make_encoder(histogram):
    """Pools with GSP if histograms are needed, else with the average."""
    backbone = keras.Sequential(
        [keras.Input((8, 8, 3)), keras.layers.Conv2D(6, 4, strides=2)]
    )
    return gsp.models.build_encoder(
        backbone,
        embedding_size=8,
        pooling=layers.GeneralizedSumPooling(5, return_histogram=True)
        if histogram
        else None,
    )


def proxies(per_class=2):
    return layers.ClassProxies(NUM_CLASSES, proxies_per_class=per_class)


def zero_shot():
    return {
        "regularizer": losses.ZeroShotLoss(),
        "class_embeddings": layers.ClassEmbeddings(NUM_CLASSES, 8),
    }


def cross_batch(pair_loss):
    return {"regularizer": losses.CrossBatchLoss(pair_loss)}


CASES = {
    "pairs": lambda: ({}, losses.ContrastiveLoss()),
    "ccp": lambda: (
        {"proxies": proxies(), "anchor_weight": 0.1, "in_batch_weight": 0.1},
        losses.ContrastiveLoss(),
    ),
    "memory+zsr": lambda: (
        {"memory": layers.EmbeddingMemory(48), **zero_shot()},
        losses.MultiSimilarityLoss(),
    ),
    "proxies+memory+xml": lambda: (
        {
            "proxies": proxies(),
            "memory": layers.EmbeddingMemory(48),
            **cross_batch(losses.TripletLoss()),
        },
        losses.ContrastiveLoss(),
    ),
    "proxy xml": lambda: (
        {"proxies": proxies(1), **cross_batch(losses.ProxyAnchorLoss())},
        losses.ProxyAnchorLoss(),
    ),
}


def learner_of(loss, optimizer="sgd", options=None, **parts):
    keras.utils.set_random_seed(5)
    encoder = make_encoder(histogram="regularizer" in parts)
    learner = gsp.models.MetricLearner(encoder, seed=1, **parts)
    learner.compile(optimizer, loss=loss, **(options or {}))
    return learner


def make_learner(case, **options):
    # Proxies and class embeddings draw their start when they are made.
    keras.utils.set_random_seed(3)
    parts, loss = CASES[case]()
    return learner_of(loss, "adam", options, **parts)


# XLA takes half a minute for each on JAX: those that have every part between
# them, among the slow tests.
SAVED = [*CASES]
if ON_JAX:
    parts = "ccp", *[*CASES][2:4]
    SAVED = [pytest.param(c, marks=pytest.mark.slow) for c in parts]


@pytest.mark.parametrize("case", SAVED)
def test_fits_saves_and_loads_with_its_optimizer(case, tmp_path):
    is_eager = not ON_JAX and case != "ccp"
    learner = make_learner(case, run_eagerly=is_eager)
    history = learner.fit(IMAGES, LABELS, batch_size=24, epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    learner.save(tmp_path / "learner.keras")
    loaded = keras.saving.load_model(tmp_path / "learner.keras")
    pairs = [(learner.weights, loaded.weights)]
    pairs += [(learner.optimizer.variables, loaded.optimizer.variables)]
    for found, expected in pairs:
        assert len(found) == len(expected)
        for first, second in zip(found, expected, strict=True):
            np.testing.assert_array_equal(
                ops.convert_to_numpy(first), ops.convert_to_numpy(second)
            )
    found = loaded.train_on_batch(IMAGES, LABELS)
    if learner.regularizer is None:  # The state of a seed is not saved.
        expected = learner.train_on_batch(IMAGES, LABELS)
        assert found == pytest.approx(expected, rel=1e-5)
    assert np.isfinite(found)


@on_tensorflow
def test_a_step_is_traced_once(monkeypatch):
    learner = make_learner("pairs")
    step = mock.Mock(wraps=learner.step_loss)
    monkeypatch.setattr(learner, "step_loss", step)
    backbone = learner.encoder.layers[0]
    backbone.trainable = False
    free = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: setattr(backbone, "trainable", True)
    )
    learner.fit(
        IMAGES, LABELS, batch_size=12, epochs=2, verbose=0, callbacks=[free]
    )
    assert step.call_count == 1


@pytest.mark.slow
@on_tensorflow  # JAX has no other way; PyTorch has no XLA.
@pytest.mark.parametrize("case", CASES)
def test_xla_takes_the_same_steps(case):
    # Compiled by XLA, TensorFlow draws other random numbers from one seed;
    # two classes have one split, whatever is drawn.
    labels = np.repeat(np.arange(2), 12)
    found = []
    for jit_compile in (False, True):
        learner = make_learner(case, jit_compile=jit_compile)
        learner.fit(IMAGES, labels, batch_size=24, epochs=3, verbose=0)
        found.append([np.array(w) for w in learner.encoder.weights])
    for plain, compiled in zip(*found, strict=True):
        np.testing.assert_allclose(plain, compiled, atol=2e-4)


def loss_value(learner, images=IMAGES, labels=LABELS, training=True):
    outputs = learner(images, training=training)
    return float(learner.compute_loss(None, labels, outputs, None, training))


@pytest.mark.parametrize(
    ("part", "weight", "within"),
    first_on_jax(
        [
            ("proxies", 0.1, 0.1),
            (None, None, 1.0),
            ("proxies", None, 1.0),
            ("sampled proxies", None, 0.1),
            ("sampled proxies", 1.0, 1.0),
            ("proxies", 0.0, 0.0),
            ("memory", None, 1.0),
            ("memory", 0.3, 0.3),
        ]
    ),
)
@slow_on("jax")
def test_references_add_to_the_loss_within_the_batch(part, weight, within):
    loss = losses.MultiSimilarityLoss()
    given = {
        None: {},
        "proxies": {"proxies": proxies()},
        "sampled proxies": {"proxies": proxies(), "anchor_weight": 0.1},
        "memory": {"memory": layers.EmbeddingMemory(48)},
    }[part]
    learner = learner_of(loss, in_batch_weight=weight, **given)
    embeddings = learner.encoder(IMAGES)
    batch = float(loss(LABELS, embeddings))
    expected = within * batch
    if part == "memory":
        # It then holds this batch alone, and no pair of a sample with itself.
        expected += batch
    if "proxies" in given:
        labels = np.repeat(np.arange(NUM_CLASSES), 2)
        rows = ops.reshape(learner.proxies.proxies, (-1, 8))
        expected += float(loss.between(LABELS, embeddings, labels, rows))
    assert batch > 0.01
    np.testing.assert_allclose(loss_value(learner), expected, rtol=1e-5)


@slow_on("jax")
def test_regularizer_is_weighted_against_the_metric_loss():
    loss = losses.ContrastiveLoss()
    learner = learner_of(loss, regularizer_weight=0.25, **zero_shot())
    outputs = learner.encoder(IMAGES)
    # A learner of the same seed draws the same halves.
    again = keras.random.SeedGenerator(1)
    half = gsp.ops.class_disjoint_halves(LABELS, again)
    table = learner.class_embeddings.embeddings
    metric = float(loss(LABELS, outputs["embedding"]))
    regularizer = losses.ZeroShotLoss().compute(
        LABELS, outputs["histogram"], table, half
    )
    expected = 0.75 * metric + 0.25 * float(regularizer)
    np.testing.assert_allclose(loss_value(learner), expected, rtol=1e-4)


@not_on_jax
def test_the_batch_replaces_a_memory_that_warms_up():
    memory = layers.EmbeddingMemory(48, warmup_steps=1)
    learner = learner_of(losses.MultiSimilarityLoss(), memory=memory)
    embeddings = learner.encoder(IMAGES)
    within = float(losses.MultiSimilarityLoss()(LABELS, embeddings))
    np.testing.assert_allclose(loss_value(learner), within, rtol=1e-6)
    assert abs(loss_value(learner) - within) > 1e-4


@not_on_jax
def test_layer_regularization_is_part_of_the_loss():
    learner = make_learner("pairs")
    plain = loss_value(learner)
    projection = learner.encoder.get_layer("projection")
    projection.kernel.regularizer = keras.regularizers.L2(0.5)
    penalty = 0.5 * np.square(np.array(projection.kernel)).sum()
    np.testing.assert_allclose(loss_value(learner), plain + penalty, rtol=1e-5)


@not_on_jax
def test_evaluation_takes_pairs_of_unseen_classes():
    learner = make_learner("ccp", run_eagerly=True)
    embeddings = ops.convert_to_numpy(learner.encoder(IMAGES))
    expected = losses.ContrastiveLoss()(LABELS, embeddings)
    found = learner.evaluate(IMAGES, LABELS + 1000, 24, verbose=0)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@not_on_jax
@pytest.mark.parametrize(
    "inner", [losses.ContrastiveLoss(), losses.ProxyAnchorLoss()]
)
def test_cross_batch_loss_fits_pooled_vectors_and_adds_up_two_halves(inner):
    random = np.random.default_rng(1)
    # The encoder is one matrix; histogram and pooled are inputs too.
    inputs = [keras.Input((8,)), keras.Input((5,)), keras.Input((8,))]
    embedding = keras.layers.Dense(8, use_bias=False)(inputs[0])
    outputs = {
        "embedding": EmbeddingNormalization()(embedding),
        "histogram": keras.layers.Identity()(inputs[1]),
        "pooled": keras.layers.Identity()(inputs[2]),
    }
    learner = gsp.models.MetricLearner(
        keras.Model(inputs, outputs),
        seed=1,
        proxies=proxies(),
        regularizer=losses.CrossBatchLoss(inner),
        regularizer_weight=1.0,
    )
    learner.compile("sgd", loss=losses.ProxyNCALoss())
    images = random.normal(size=(24, 8))
    histograms = random.dirichlet(np.ones(5), size=24)
    pooled = 7.0 * random.normal(size=(24, 8))
    features = [a.astype("float32") for a in (images, histograms, pooled)]
    found = loss_value(learner, features)
    # A learner of the same seed draws the same halves.
    again = keras.random.SeedGenerator(1)
    half = np.asarray(gsp.ops.class_disjoint_halves(LABELS, again))
    expressed = ops.convert_to_numpy(
        learner.regularizer.express(LABELS, *features[1:], half)
    )
    expected = 0.0
    for test in (half, ~half):
        rows = expressed[test]
        rows = learner.proxies(rows) if inner.needs else rows
        expected += float(inner(LABELS[test], rows))
    np.testing.assert_allclose(found, expected, rtol=1e-3)
