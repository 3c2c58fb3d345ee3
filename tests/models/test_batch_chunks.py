"""A batch in chunks takes the step of the whole batch."""

import keras
import numpy as np
import pytest
from keras import layers

import keras_gsp as gsp

CLASSES = 6
IMAGES = np.random.default_rng(0).normal(size=(48, 6, 6, 3)).astype("float32")
LABELS = np.tile(np.repeat(np.arange(CLASSES), 4), 2)
ON_TENSORFLOW = keras.backend.backend() == "tensorflow"


def zero_shot():
    return {
        "regularizer": gsp.losses.ZeroShotLoss(),
        "class_embeddings": gsp.layers.ClassEmbeddings(CLASSES, 4),
    }


def proxies():
    return gsp.layers.ClassProxies(CLASSES, proxies_per_class=2)


PROXY_LOSS = gsp.losses.ProxyAnchorLoss()
CASES = {
    "pairs+zsr": lambda: (gsp.losses.MultiSimilarityLoss(), zero_shot()),
    "proxies+memory+anchors+xml": lambda: (
        gsp.losses.ContrastiveLoss(),
        {
            "proxies": proxies(),
            "memory": gsp.layers.EmbeddingMemory(48),
            "anchor_weight": 0.3,
            "regularizer": gsp.losses.CrossBatchLoss(gsp.losses.TripletLoss()),
            "regularizer_weight": 0.3,
        },
    ),
    "proxy loss": lambda: (PROXY_LOSS, {"proxies": proxies()}),
}


def make_learner(case, batch_chunks, *, between=(), options=None, **compiled):
    keras.utils.set_random_seed(1)
    first = layers.Conv2D(
        5, 3, activation="relu", kernel_regularizer="l2", name="first"
    )
    pooling = gsp.layers.GeneralizedSumPooling(
        3, inverse_temperature=5.0, return_histogram=True, name="pooling"
    )
    encoder = gsp.models.build_encoder(
        keras.Sequential([keras.Input((6, 6, 3)), first, *between]),
        embedding_size=4,
        pooling=pooling,
    )
    loss, parts = CASES[case]()
    learner = gsp.models.MetricLearner(
        encoder, seed=1, batch_chunks=batch_chunks, **parts | (options or {})
    )
    # Eager on TensorFlow; the slow tier compiles.
    compiled = {"run_eagerly": ON_TENSORFLOW and not compiled} | compiled
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    learner.compile(optimizer, loss=loss, **compiled)
    if learner.anchored is not None:
        weights = [np.asarray(w) for w in encoder.get_weights()]
        learner.anchored.start_problem([weight + 0.1 for weight in weights])
    return learner


def trained(learner, epochs=2, batch_size=24):
    options = {"batch_size": batch_size, "epochs": epochs, "verbose": 0}
    fitted = learner.fit(IMAGES, LABELS, shuffle=False, **options)
    values = [keras.ops.convert_to_numpy(v) for v in learner.variables]
    return fitted.history["loss"], values


@pytest.mark.parametrize(
    ("case", "options"),
    [
        ("proxies+memory+anchors+xml", {}),
        pytest.param("pairs+zsr", {}, marks=pytest.mark.slow),
        pytest.param(
            "proxy loss", {"jit_compile": True}, marks=pytest.mark.slow
        ),
        pytest.param(
            "proxies+memory+anchors+xml",
            {"jit_compile": False},
            marks=pytest.mark.slow,
        ),
    ],
    ids=str,
)
def test_chunks_take_the_steps_of_the_whole_batch(case, options):
    # JAX rounds to float32, and the ridge fit of cross-batch learning takes
    # rounding further from step to step: one step there.
    steps, tolerance = {"epochs": 1, "batch_size": 48}, 2e-5
    if ON_TENSORFLOW:
        keras.config.set_dtype_policy("float64")
        steps, tolerance = {}, 1e-9
    whole = trained(make_learner(case, 1), **steps)
    found = trained(make_learner(case, 4, **options), **steps)
    np.testing.assert_allclose(found[0], whole[0], rtol=tolerance)
    for value, target in zip(found[1], whole[1], strict=True):
        np.testing.assert_allclose(value, target, atol=tolerance)


def test_batch_norm_sees_a_chunk_and_its_averages_move_with_each():
    def moving(batch_chunks):
        norm = layers.BatchNormalization(momentum=0.5)
        learner = make_learner("pairs+zsr", batch_chunks, between=[norm])
        trained(learner, epochs=1, batch_size=48)
        return keras.ops.convert_to_numpy(norm.moving_mean)

    first = make_learner("pairs+zsr", 1).encoder.get_layer("first")
    features = keras.ops.convert_to_numpy(first(IMAGES))
    expected = np.zeros(5)
    for chunk in range(4):
        expected += 0.5 * (features[chunk::4].mean((0, 1, 2)) - expected)
    # Once for each chunk, although each is embedded twice.
    np.testing.assert_allclose(moving(4), expected, rtol=1e-4)
    np.testing.assert_allclose(
        moving(1), 0.5 * features.mean((0, 1, 2)), rtol=1e-4
    )


@pytest.mark.skipif(not ON_TENSORFLOW, reason="JAX has no second pass")
def test_dropout_drops_the_same_in_both_passes():
    import tensorflow as tf

    learner, again = (
        make_learner(
            "proxy loss", chunks, between=[layers.Dropout(0.5, seed=3)]
        )
        for chunks in (4, 1)
    )
    kernels = [one.encoder.trainable_variables[0] for one in (learner, again)]
    before = np.asarray(kernels[1])
    learner.train_on_batch(IMAGES[:24], LABELS[:24])
    # By hand: chunk after chunk with gradients, as one batch.
    order = np.concatenate([np.arange(24)[chunk::4] for chunk in range(4)])
    with tf.GradientTape() as tape:
        embeddings = [
            again.encoder(IMAGES[:24][chunk::4], training=True)["embedding"]
            for chunk in range(4)
        ]
        similarities = again.proxies(keras.ops.concatenate(embeddings))
        loss = again.loss(LABELS[order], similarities) + sum(again.losses)
    slopes = np.asarray(tape.gradient(loss, kernels[1]))
    np.testing.assert_allclose(
        before - np.asarray(kernels[0]), 0.1 * slopes, atol=1e-6
    )
