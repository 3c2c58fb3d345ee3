"""Every combination of methods makes a learner that learns."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_gsp.data import ImageSet
from keras_gsp.models.encoder import features_before
from training.recipes.learner import (
    Rate,
    build_learner,
    fitted_images,
    initialize_projection,
    settle_statistics,
    start_prototypes,
)
from training.recipes.recipe import named

SMALL = {"embedding_size": 8, "num_prototypes": 4}
MEMORY = {"capacity": 64}
SHAPE = (16, 16, 3)
GAP = named("glyphs")
COMBINATIONS = [
    {"pooling": "gem-gsp"},
    {"pooling": "gsp", "memory": MEMORY},
    {"pooling": "gsp", "regularizer": "zsr"},
    {"regularizer": "xml", "loss": "triplet"},
    {"regularizer": "xml", "pooling": "gsp", "loss": "ms"},
    {"ccp": "on", "loss": "c1"},
    {"loss": "soft-triple", "pooling": "gsp", "regularizer": "zsr"},
]


UNANCHORED = {"ccp_arguments": {"anchor_weight": 0.0}}


def batch(classes=4):
    images = np.random.default_rng(0).integers(0, 256, (2 * classes, *SHAPE))
    return images.astype("uint8"), np.repeat(np.arange(classes), 2)


def learner_of(recipe):
    return build_learner(
        recipe.with_(**SMALL), num_classes=6, image_shape=SHAPE
    )


def test_every_method_has_a_finite_loss():
    images, labels = batch()
    for choices in COMBINATIONS:
        learner = learner_of(named("glyphs").with_(**choices))
        outputs = learner(images, training=True)
        loss = learner.compute_loss(images, labels, outputs, training=True)
        assert np.isfinite(float(loss)), choices


def test_weights_of_the_loss_are_those_that_are_set():
    for settings, name, value in (
        # The papers' weights, unless another is set.
        ({"pooling": "gsp", "regularizer": "zsr"}, "regularizer_weight", 0.1),
        ({"regularizer": "xml"}, "regularizer_weight", 0.01),
        ({"memory": MEMORY, "in_batch_weight": 0.25}, "in_batch_weight", 0.25),
        ({"loss": "proxy-nca"}, "anchor_weight", None),
        ({"ccp": "single"}, "anchor_weight", 2e-4),
        ({"ccp": "on", **UNANCHORED}, "anchor_weight", 0.0),
    ):
        assert getattr(learner_of(GAP.with_(**settings)), name) == value


def test_closed_forms_see_several_images_of_each_class(monkeypatch):
    monkeypatch.setattr("training.recipes.learner.PROJECTED", 40)
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(3), 20))
    images = ImageSet(labels, tuple("abc"), np.zeros((60, 2, 2, 3), "uint8"))
    found = np.bincount(fitted_images(images).labels)
    assert sorted(found) == [8, 16, 16]


def test_a_projection_starts_from_learned_whitening():
    images, labels = batch(classes=6)
    images = ImageSet(labels, tuple("abcdef"), images=images)
    recipe = GAP.with_(**SMALL, projection_start="learned")
    learner, kernels = learner_of(recipe), []
    # With a shrinkage of 1 it is PCA.
    for shrinkage in (1.0, 0.3):
        initialize_projection(recipe, learner, images, shrinkage)
        kernel = np.array(learner.encoder.get_layer("projection").kernel)
        kernels.append(kernel.reshape(-1, 8))
    products = [kernel.T @ kernel for kernel in kernels]
    np.testing.assert_allclose(products[0], np.eye(8), atol=1e-5)
    assert np.abs(products[1] - np.eye(8)).max() > 0.1
    wide = recipe.with_(embedding_size=12)
    learner = build_learner(wide, num_classes=6, image_shape=SHAPE)
    with pytest.warns(UserWarning, match="starts at random.*=12 is more"):
        initialize_projection(wide, learner, images)


def test_the_same_seed_gives_the_same_weights():
    recipe = GAP.with_(pooling="gsp", regularizer="zsr")
    first, again, other = (
        learner_of(recipe.with_(seed=seed)).get_weights() for seed in (0, 0, 1)
    )
    assert all(map(np.array_equal, first, again))
    assert not all(map(np.array_equal, first, other))


@pytest.mark.parametrize(
    "changes, layer, name",
    [
        ({"pooling": "gem-gsp"}, "pooling", "prototypes"),
        ({"pooling": "otk"}, "pooling", "references"),
        ({"regularizer": "xml"}, "histogram", "prototypes"),
    ],
)
def test_prototypes_start_from_training_images(changes, layer, name):
    recipe = GAP.with_(**changes, **SMALL)
    batches = tf.data.Dataset.from_tensors(batch())
    found = []
    for _ in range(2):
        learner = learner_of(recipe)
        weight = getattr(learner.encoder.get_layer(layer), name)
        before = np.array(weight)
        start_prototypes(recipe, learner, batches)
        assert not np.array_equal(before, weight)
        found.append(np.array(weight))
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    "pooling, part",
    [
        pytest.param("gap", "encoder", marks=pytest.mark.slow),
        # Weights of the backbone bring its statistics; those of the pooling
        # are updated.
        ("gap", None),
        pytest.param("gsop", "pooling", marks=pytest.mark.slow),
    ],
)
def test_statistics_are_settled_unless_weights_bring_their_own(pooling, part):
    """The scored network is then the trained one, from the first step on."""
    recipe = GAP.with_(**SMALL, pooling=pooling)
    learner = learner_of(recipe)
    encoder, (images, labels) = learner.encoder, batch()
    batches = tf.data.Dataset.from_tensors((images, labels)).repeat(100)
    layer = encoder.get_layer("pooling") if part == "pooling" else encoder
    moving = [] if part is None else layer.non_trainable_variables
    settled = {v.path for v in moving if "moving" in v.path}
    before = {v.path: v.numpy() for v in encoder.non_trainable_variables}
    if part != "encoder":
        recipe = recipe.with_(backbone_weights="network.weights.h5")
    settle_statistics(recipe, learner, batches)
    after = {v.path: v.numpy() for v in encoder.non_trainable_variables}
    changed = {k for k in after if not np.array_equal(after[k], before[k])}
    assert changed == settled and bool(settled) == (part is not None)
    if part is None:
        return
    if part == "pooling":
        images = features_before(encoder, layer)(images)
    scored, trained = (
        np.asarray(layer(images, training=is_training))
        for is_training in (False, True)
    )
    scale = np.abs(trained).max()
    np.testing.assert_allclose(scored / scale, trained / scale, atol=5e-3)


def test_a_rate_waits_rises_and_falls():
    rate = Rate(1.0, hold=2, ramp=2)
    found = [float(rate(step)) for step in range(6)]
    assert found == [0.0, 0.0, 0.5, 1.0, 1.0, 1.0]
    rate = Rate(2.0, fall=4)
    found = [float(rate(step)) for step in range(6)]
    np.testing.assert_allclose(
        found, 1 + np.cos(np.pi * np.minimum(np.arange(6) / 4, 1)), atol=1e-6
    )
    rate = Rate(2.0, fall=6, fall_start=4)
    rate = Rate.from_config(rate.get_config())
    found = [float(rate(step)) for step in range(8)]
    np.testing.assert_allclose(found, [2, 2, 2, 2, 2, 1, 0, 0], atol=1e-6)


def optimizers_of(recipe):
    """Optimizer of each layer that is trained, by the first part of a path."""
    recipe = recipe.with_(embedding_size=8, num_prototypes=4)
    learner = build_learner(recipe, num_classes=3, image_shape=(16, 16, 3))
    learner.optimizer.build(learner.trainable_variables)
    return {
        variable.path.split("/")[0]: optimizer
        for optimizer in learner.optimizer.optimizers
        for variable in optimizer._trainable_variables
    }


def test_settings_reach_the_optimizer_and_the_backbone_waits():
    recipe = GAP.with_(loss="proxy-nca", fall_share=1.0, warmup_steps=5)
    found = optimizers_of(recipe)
    for one in found.values():
        assert isinstance(one, keras.optimizers.AdamW)
        assert one.weight_decay == 1e-4
    rates = {name: one._learning_rate for name, one in found.items()}
    peaks = {"metric_learner": 5 * recipe.learning_rate}  # of its proxies
    for name, rate in rates.items():
        assert rate.peak == peaks.get(name, recipe.learning_rate)
        assert rate.hold == (5 if name == "glyph_cnn" else 0)
        assert rate.fall == recipe.steps
    assert rates.keys() == {"glyph_cnn", "projection", "metric_learner"}


def test_the_backbone_may_learn_slower_than_the_head():
    found = optimizers_of(GAP.with_(backbone_learning_rate_multiplier=0.01))
    rates = {k: float(one.learning_rate) for k, one in found.items()}
    rate = GAP.learning_rate
    assert rates == pytest.approx(
        {"projection": rate, "glyph_cnn": 0.01 * rate}
    )
