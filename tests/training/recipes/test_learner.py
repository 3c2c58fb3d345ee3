"""Every named recipe of the embedded data set makes a learner that learns."""

from dataclasses import replace

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.models.encoder import features_before

if keras.backend.backend() != "tensorflow":
    pytest.skip("training runs on TensorFlow", allow_module_level=True)

from training.recipes.backbone import build_backbone
from training.recipes.glyphs import RECIPES
from training.recipes.learner import (
    build_learner,
    settle_statistics,
    start_prototypes,
)
from training.recipes.recipe import Recipe

SMALL = {"embedding_size": 8, "num_prototypes": 4, "memory_capacity": 64}
SHAPE = (16, 16, 3)
COMBINATIONS = [
    name
    for name in RECIPES
    if name.endswith(("gmp", "gem-gsp", "xbm", "zsr", "xml", "ccp"))
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
        replace(recipe, **SMALL), num_classes=6, image_shape=SHAPE
    )


@pytest.mark.parametrize("name", COMBINATIONS)
def test_every_recipe_has_a_finite_loss(name):
    learner = learner_of(RECIPES[name])
    images, labels = batch()
    outputs = learner(images, training=True)
    loss = learner.compute_loss(images, labels, outputs, training=True)
    assert np.isfinite(float(loss))


@pytest.mark.parametrize(
    "recipe, kind",
    [
        (RECIPES["glyphs-gap"], keras.layers.GlobalAveragePooling2D),
        (RECIPES["glyphs-gmp"], keras.layers.GlobalMaxPooling2D),
        (RECIPES["glyphs-gem"], gsp.layers.GeneralizedMeanPooling),
        (RECIPES["glyphs-gsp"], gsp.layers.GeneralizedSumPooling),
    ],
)
def test_the_pooling_is_the_one_named(recipe, kind):
    assert isinstance(learner_of(recipe).encoder.get_layer("pooling"), kind)


def test_settings_reach_the_layers():
    recipe = replace(
        RECIPES["glyphs-gem-gsp"],
        transport_ratio=0.4,
        inverse_temperature=7.0,
        power=2.0,
        negative_margin=0.7,
    )
    learner = learner_of(recipe)
    pooling = learner.encoder.get_layer("pooling")
    assert pooling.num_prototypes == 4
    assert pooling.transport_ratio == 0.4
    assert pooling.inverse_temperature == 7.0
    assert pooling.power == 2.0
    assert learner.loss.negative_margin == 0.7


def test_the_regularizer_has_the_papers_weight_unless_told_otherwise():
    assert learner_of(RECIPES["glyphs-gsp-zsr"]).regularizer_weight == 0.1
    assert learner_of(RECIPES["glyphs-xml"]).regularizer_weight == 0.01
    other = replace(RECIPES["glyphs-xml"], regularizer_weight=0.5)
    assert learner_of(other).regularizer_weight == 0.5


def test_the_same_seed_gives_the_same_weights():
    first, again, other = (
        learner_of(replace(RECIPES["glyphs-gsp-zsr"], seed=seed)).get_weights()
        for seed in (0, 0, 1)
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
    learner = learner_of(replace(RECIPES["glyphs-proxy-nca"], **rates))
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
    recipe = replace(RECIPES["glyphs-gsp"], warmup_steps=2, **SMALL)
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
    "name, size",
    [
        ("glyph-cnn", (4, 4, 96)),
        ("resnet20", (8, 8, 64)),
        ("mobilenet-v2", (1, 1, 1280)),
    ],
)
def test_backbones_take_bytes_to_feature_maps(name, size):
    recipe = Recipe(backbone=name)
    backbone = build_backbone(recipe, (32, 32, 3))
    assert backbone.input.dtype == "uint8"
    assert backbone.output.shape[1:] == size


def test_frozen_parts_are_not_trained():
    frozen = build_backbone(Recipe(frozen="all"), SHAPE)
    assert not frozen.trainable_variables
    half = build_backbone(Recipe(frozen="batch-norm"), SHAPE)
    names = {v.path.split("/")[-1] for v in half.trainable_variables}
    assert names == {"kernel"}


def test_backbone_weights_come_from_the_file(tmp_path):
    source = build_backbone(Recipe(seed=1), SHAPE)
    file = str(tmp_path / "network.weights.h5")
    source.layers[-1].save_weights(file)
    loaded = build_backbone(Recipe(backbone_weights=file), SHAPE)
    for one, other in zip(
        source.get_weights(), loaded.get_weights(), strict=True
    ):
        assert np.array_equal(one, other)


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

    recipe = replace(RECIPES["glyphs"], **changes, **SMALL)
    batches = tf.data.Dataset.from_tensors(batch())
    found = []
    for start in ("random", "data", "data"):
        started = replace(recipe, prototype_start=start)
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

    recipe = replace(RECIPES["glyphs-gap"], **SMALL)
    learner = learner_of(recipe)
    images, labels = batch()
    batches = tf.data.Dataset.from_tensors((images, labels)).repeat(100)
    before = [v.numpy() for v in learner.encoder.non_trainable_variables]
    loaded = replace(recipe, backbone_weights=weights)
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

    recipe = replace(RECIPES["glyphs-gap"], **SMALL, pooling=pooling)
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
    loaded = replace(recipe, backbone_weights="network.weights.h5")
    settle_statistics(loaded, learner, batches, num_batches=100)
    after = [v.numpy() for v in of_backbone]
    assert all(map(np.array_equal, before, after))
    features = features_before(learner.encoder, layer)(images)
    scored = np.asarray(layer(features, training=False))
    trained = np.asarray(layer(features, training=True))
    scale = np.abs(trained).max()
    np.testing.assert_allclose(scored / scale, trained / scale, atol=5e-3)


def test_the_weight_within_the_batch_is_used_as_it_is_set():
    xbm = replace(RECIPES["glyphs-xbm"], in_batch_weight=0.25)
    assert learner_of(xbm).in_batch_weight == 0.25
    assert learner_of(RECIPES["glyphs-xbm"]).in_batch_weight is None
    ccp = replace(RECIPES["glyphs-ccp"], in_batch_weight=0.1)
    assert learner_of(ccp).in_batch_weight == 0.1


def test_learned_proxies_start_at_random_and_have_no_anchor():
    learned = learner_of(replace(RECIPES["glyphs-ccp"], ccp="learned"))
    sampled = learner_of(replace(RECIPES["glyphs-ccp"], ccp="single"))
    assert learned.proxies.proxies.shape == sampled.proxies.proxies.shape
    assert learned.anchor_weight is None and sampled.anchor_weight > 0.0
    free = replace(RECIPES["glyphs-ccp"], anchor_weight=0.0)
    assert learner_of(free).progress is not None
    before = learned.proxies.proxies.numpy()
    learned.train_on_batch(*batch())
    assert not np.array_equal(learned.proxies.proxies.numpy(), before)


def test_a_recent_pool_has_a_memory_of_its_own():
    recipe = replace(RECIPES["glyphs-ccp"], ccp_pool="recent", ccp_pool_size=20)
    learner = learner_of(recipe)
    assert learner.memory is None
    assert learner.recent.capacity == 6 * 20
