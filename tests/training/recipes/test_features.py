"""Cached features train the same head as the images would."""

import numpy as np
import pytest

from keras_gsp.data import ImageSet
from training.datasets.image_set import RetrievalSplits
from training.recipes import features
from training.recipes.batches import evaluation_batches
from training.recipes.learner import build_backbone, build_learner
from training.recipes.recipe import Recipe

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def recipe(tmp_path):
    recipe = Recipe.of(
        backbone="glyph-cnn", frozen="all", crop_size=16, embedding_size=8
    )
    weights = tmp_path / "backbone.weights.h5"
    build_backbone(recipe, (16, 16, 3)).get_layer("glyph_cnn").save_weights(
        weights
    )
    return recipe.with_(backbone_weights=str(weights), cache_features=True)


def image_set(name):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (4, 20, 20, 3)).astype("uint8")
    return ImageSet([0, 0, 1, 1], (f"{name}0", f"{name}1"), images=images)


def test_a_head_on_features_is_completed_by_its_backbone(recipe):
    splits = RetrievalSplits("x", image_set("a"), image_set("b"))
    cached = features.with_features(recipe, splits)
    assert cached.train.images.shape == (4, 2, 2, 96)
    learner = build_learner(recipe, num_classes=2, image_shape=(2, 2, 96))
    encoder = features.complete_encoder(recipe, learner.encoder)
    plain = recipe.with_(cache_features=False)
    ((cut, _),) = evaluation_batches(plain, splits.train)
    assert encoder.input_shape == (None, 16, 16, 3)
    assert encoder(cut).shape == (4, 8)
    backbone = build_backbone(plain, (16, 16, 3))
    whole = learner.encoder(np.asarray(backbone(cut)).astype("float16"))
    # Features are kept in half precision.
    np.testing.assert_allclose(encoder(cut), whole, atol=2e-3)


def test_features_are_computed_once_for_the_same_weights(recipe, monkeypatch):
    splits = RetrievalSplits("x", image_set("a"), image_set("b"))
    first = features.with_features(recipe, splits)
    other = recipe.with_(backbone_weights=None, seed=1)
    again = features.with_features(other, splits)
    assert (first.test.images != again.test.images).any()
    closer = features.with_features(recipe.with_(resize=20), splits)
    assert (first.test.images != closer.test.images).any()
    monkeypatch.setattr(features, "_computed", None)
    again = features.with_features(recipe, splits)
    np.testing.assert_array_equal(first.test.images, again.test.images)


@pytest.mark.slow
def test_a_last_stage_learns_from_crops_and_scores_whole_images():
    recipe = Recipe.of(
        backbone="mobilenet-v2@0.35",
        frozen="trunk",
        cache_features=True,
        augmentation="mlrc-area",
        crop_size=64,
        embedding_size=4,
    )
    splits = RetrievalSplits("x", image_set("a"), image_set("b"))
    cached = features.with_features(recipe, splits).train
    # The whole image and two crops of it, 32 channels each.
    assert cached.images.shape == (4, 4, 4, 96)
    learner = build_learner(recipe, num_classes=2, image_shape=(4, 4, 96))
    view = learner.encoder.get_layer("view")
    np.testing.assert_array_equal(view(cached.images), cached.images[..., :32])
    crops = {
        tuple(np.asarray(view(cached.images, training=True))[0, 0, 0])
        for _ in range(20)
    }
    own = cached.images[0, 0, 0].astype("float32")
    assert crops == {tuple(own[32:64]), tuple(own[64:])}
    stage = learner.encoder.get_layer("last_stage")
    before = stage.get_weights()
    learner.fit(cached.images, cached.labels, batch_size=4, verbose=0)
    after = stage.get_weights()
    assert any((a != b).any() for a, b in zip(before, after, strict=True))
    encoder = features.complete_encoder(recipe, learner.encoder)
    assert not encoder.get_layer("trunk").trainable_variables
    plain = recipe.with_(cache_features=False)
    ((cut, _),) = evaluation_batches(plain, splits.train)
    np.testing.assert_allclose(
        encoder(cut), learner.encoder(cached.images), atol=2e-3
    )
