"""Every combination of methods makes a learner that learns."""

import keras
import numpy as np
import pytest

from keras_gsp.models.encoder import features_before

if keras.backend.backend() != "tensorflow":
    pytest.skip("training runs on TensorFlow", allow_module_level=True)

from training.recipes.learner import (
    build_learner,
    settle_statistics,
    start_prototypes,
)
from training.recipes.named import named

SMALL = {"embedding_size": 8, "num_prototypes": 4, "memory_capacity": 64}
SHAPE = (16, 16, 3)
GAP = named("glyphs")
ZSR = GAP.with_(pooling="gsp", regularizer="zsr")
XML = GAP.with_(regularizer="xml")
XBM = GAP.with_(memory="xbm")
CCP = named("glyphs", ccp="on")
COMBINATIONS = [
    {"pooling": "gmp"},
    {"pooling": "gem-gsp"},
    {"pooling": "gsp", "memory": "xbm"},
    {"pooling": "gsp", "regularizer": "zsr"},
    {"regularizer": "xml", "loss": "triplet"},
    {"regularizer": "xml", "pooling": "gsp", "loss": "ms"},
    {"ccp": "on", "loss": "c1"},
    {"loss": "soft-triple", "pooling": "gsp", "regularizer": "zsr"},
    {"loss": "libc"},
]


def batch(classes=4, samples=2):
    generator = np.random.default_rng(0)
    size = (classes * samples, *SHAPE)
    return (
        generator.integers(0, 256, size, "uint8"),
        np.repeat(np.arange(classes), samples),
    )


def learner_of(recipe):
    return build_learner(
        recipe.with_(**SMALL), num_classes=6, image_shape=SHAPE
    )


@pytest.mark.parametrize("choices", COMBINATIONS, ids=str)
def test_every_method_has_a_finite_loss(choices):
    learner = learner_of(named("glyphs", **choices))
    images, labels = batch()
    outputs = learner(images, training=True)
    loss = learner.compute_loss(images, labels, outputs, training=True)
    assert np.isfinite(float(loss))


def test_settings_reach_the_layers():
    recipe = GAP.with_(
        pooling="gem-gsp",
        transport_ratio=0.4,
        inverse_temperature=7.0,
        pooling_arguments={"power": 2.0},
        loss_arguments={"negative_margin": 0.7},
    )
    learner = learner_of(recipe)
    pooling = learner.encoder.get_layer("pooling")
    assert pooling.num_prototypes == 4
    assert pooling.transport_ratio == 0.4
    assert pooling.inverse_temperature == 7.0
    assert pooling.power == 2.0
    assert learner.loss.negative_margin == 0.7


def test_the_regularizer_has_the_papers_weight_unless_told_otherwise():
    assert learner_of(ZSR).regularizer_weight == 0.1
    assert learner_of(XML).regularizer_weight == 0.01
    other = XML.with_(regularizer_weight=0.5)
    assert learner_of(other).regularizer_weight == 0.5


def test_the_same_seed_gives_the_same_weights():
    first, again, other = (
        learner_of(ZSR.with_(seed=seed)).get_weights() for seed in (0, 0, 1)
    )
    assert all(map(np.array_equal, first, again))
    assert not all(map(np.array_equal, first, other))


def test_proxies_move_faster_than_the_network():
    rates = {
        "learning_rate": 1e-3,
        "proxy_learning_rate_multiplier": 100.0,
        "ramp_steps": 0,
        "schedule": "constant",
    }
    learner = learner_of(named("glyphs", loss="proxy-nca").with_(**rates))
    before = learner.get_weights()
    images, labels = batch()
    learner.train_on_batch(images, labels)
    moved = {
        variable.path: np.abs(variable.numpy() - old).max()
        for variable, old in zip(learner.weights, before, strict=True)
        if variable.trainable
    }
    proxies = moved.pop(learner.proxies.proxies.path)
    assert proxies == pytest.approx(0.1, rel=0.1)
    assert max(moved.values()) < 0.01


def test_the_backbone_waits_for_the_end_of_the_warm_up():
    recipe = named("glyphs", pooling="gsp").with_(warmup_steps=2, **SMALL)
    learner = build_learner(recipe, num_classes=6, image_shape=SHAPE)
    kernel, head = (
        next(v for v in learner.trainable_variables if v.path.endswith(end))
        for end in ("convolution_1/kernel", "projection/kernel")
    )
    images, labels = batch()
    for step in range(4):
        before = kernel.numpy(), head.numpy()
        learner.train_on_batch(images, labels)
        assert np.array_equal(kernel.numpy(), before[0]) == (step < 2)
        assert not np.array_equal(head.numpy(), before[1])


@pytest.mark.parametrize(
    "changes, layer, name",
    [
        ({"pooling": "gsp"}, "pooling", "prototypes"),
        ({"pooling": "gem-gsp"}, "pooling", "prototypes"),
        ({"pooling": "otk"}, "pooling", "references"),
        ({"regularizer": "xml"}, "histogram", "prototypes"),
    ],
)
def test_prototypes_start_from_training_images(changes, layer, name):
    import tensorflow as tf

    recipe = GAP.with_(**changes, **SMALL)
    batches = tf.data.Dataset.from_tensors(batch())
    found = []
    for start in ("random", "data", "data"):
        started = recipe.with_(prototype_start=start)
        learner = learner_of(started)
        weight = getattr(learner.encoder.get_layer(layer), name)
        before = np.array(weight)
        start_prototypes(started, learner, batches)
        assert np.array_equal(before, weight) == (start == "random")
        found.append(np.array(weight))
    np.testing.assert_array_equal(found[1], found[2])


@pytest.mark.parametrize("weights", [None, "network.weights.h5"])
def test_statistics_are_settled_unless_weights_bring_their_own(weights):
    """Scored and trained, the network is then the same but for rounding."""
    import tensorflow as tf

    recipe = GAP.with_(**SMALL)
    learner = learner_of(recipe)
    images, labels = batch()
    batches = tf.data.Dataset.from_tensors((images, labels)).repeat(100)
    before = [v.numpy() for v in learner.encoder.non_trainable_variables]
    loaded = recipe.with_(backbone_weights=weights)
    settle_statistics(loaded, learner, batches, num_batches=100)
    after = [v.numpy() for v in learner.encoder.non_trainable_variables]
    if weights is not None:
        assert all(map(np.array_equal, before, after))
        return
    scored = np.asarray(learner.encoder(images, training=False))
    trained = np.asarray(learner.encoder(images, training=True))
    np.testing.assert_allclose(scored, trained, atol=5e-3)


@pytest.mark.parametrize("pooling", ["gsop", "solar", "gap"])
def test_statistics_of_the_pooling_are_settled_beside_weights(pooling):
    """What is scored is then what was trained, from the first step on."""
    import tensorflow as tf

    recipe = GAP.with_(**SMALL, pooling=pooling)
    learner = learner_of(recipe)
    images, labels = batch()
    batches = tf.data.Dataset.from_tensors((images, labels)).repeat(100)
    layer = learner.encoder.get_layer("pooling")
    moving = [v for v in layer.non_trainable_variables if "moving" in v.name]
    assert bool(moving) == (pooling != "gap")
    of_backbone = [
        v
        for v in learner.encoder.non_trainable_variables
        if not any(v is one for one in moving)
    ]
    before = [v.numpy() for v in of_backbone]
    loaded = recipe.with_(backbone_weights="network.weights.h5")
    settle_statistics(loaded, learner, batches, num_batches=100)
    after = [v.numpy() for v in of_backbone]
    assert all(map(np.array_equal, before, after))
    features = features_before(learner.encoder, layer)(images)
    scored = np.asarray(layer(features, training=False))
    trained = np.asarray(layer(features, training=True))
    scale = np.abs(trained).max()
    np.testing.assert_allclose(scored / scale, trained / scale, atol=5e-3)


def test_the_weight_within_the_batch_is_used_as_it_is_set():
    xbm = XBM.with_(in_batch_weight=0.25)
    assert learner_of(xbm).in_batch_weight == 0.25
    assert learner_of(XBM).in_batch_weight is None
    ccp = CCP.with_(in_batch_weight=0.1)
    assert learner_of(ccp).in_batch_weight == 0.1


def test_learned_proxies_start_at_random_and_have_no_anchor():
    learned = learner_of(CCP.with_(ccp="learned"))
    sampled = learner_of(CCP.with_(ccp="single"))
    assert learned.proxies.proxies.shape == sampled.proxies.proxies.shape
    assert learned.anchor_weight is None and sampled.anchor_weight > 0.0
    free = CCP.with_(anchor_weight=0.0)
    assert learner_of(free).progress is not None
    before = learned.proxies.proxies.numpy()
    learned.train_on_batch(*batch())
    assert not np.array_equal(learned.proxies.proxies.numpy(), before)


def test_a_recent_pool_has_a_memory_of_its_own():
    recipe = CCP.with_(ccp_pool="recent", ccp_pool_size=20)
    learner = learner_of(recipe)
    assert learner.memory is None
    assert learner.recent.capacity == 6 * 20
