"""Every loss and pooling of the package has a word."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.layers.pooling.feature_pooling import FeaturePooling
from training.recipes.choices import (
    LIST_LOSSES,
    LOSSES,
    PAIR_LOSSES,
    POOLINGS,
    PROXY_LOSSES,
    make_loss,
    make_pooling,
)
from training.recipes.learner import build_loss, build_loss_layer
from training.recipes.recipe import Recipe

# Bases, and losses that are settings of their own.
NO_WORD = {"MetricLoss", "PairLoss", "ListLoss", "ProxyLoss", "Matryoshka"}


def test_every_exported_loss_and_pooling_has_a_word():
    exported = {
        name
        for name in gsp.losses.__all__
        if issubclass(getattr(gsp.losses, name), gsp.losses.MetricLoss)
    }
    # One may be on its way out of the package.
    assert exported - NO_WORD == {*LOSSES.values()}
    exported = {
        name
        for name in gsp.layers.__all__
        if issubclass(getattr(gsp.layers, name), FeaturePooling)
    }
    found = {name for name, _ in POOLINGS.values()}
    assert found - exported == {
        "GlobalAveragePooling2D",
        "GlobalMaxPooling2D",
    }
    assert exported <= found


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (PAIR_LOSSES, gsp.losses.PairLoss),
        (LIST_LOSSES, gsp.losses.ListLoss),
        (PROXY_LOSSES, gsp.losses.ProxyLoss),
    ],
)
def test_every_loss_is_made_and_of_its_kind(words, kind):
    for word in words:
        loss = build_loss(Recipe.of(loss=word, normalization="ball"))
        assert isinstance(loss, kind) and type(loss) is type(make_loss(word))
        if issubclass(kind, gsp.losses.PairLoss):
            assert loss.normalization == "ball"
            embeddings = np.random.default_rng(0).normal(size=(6, 4))
            assert np.isfinite(loss([0, 0, 1, 1, 2, 2], embeddings))


def test_classes_check_their_arguments():
    loss = build_loss(Recipe.of(loss="ms", loss_arguments={"beta": 10.0}))
    assert (loss.alpha, loss.beta) == (2.0, 10.0)
    layer = make_pooling("netvlad", num_clusters=4)
    assert layer.num_clusters == 4
    for make, arguments, words in (
        (make_loss, ("c2", {"negative_margin": -1.0}), "negative_margin"),
        (make_loss, ("c2", {"beta": 1.0}), "ContrastiveLoss.*beta"),
        (make_pooling, ("gemax", {"ridge": 0.0}), "ridge"),
        (make_pooling, ("gap", {"ridge": 0.0}), "GlobalAverage.*ridge"),
    ):
        word, named = arguments
        with pytest.raises(ValueError, match=words):
            make(word, **named)
    assert isinstance(make_pooling("gap"), keras.layers.Layer)


def test_miners_and_layers_of_losses():
    built = build_loss(Recipe.of(loss="margin", miner="batch-hard", seed=3))
    assert (built.miner, built.seed) == ("batch_hard", 3)
    layer = build_loss_layer(Recipe.of(loss="libc"), 3)
    assert layer.num_classes == 3
    learned = Recipe.of(
        loss="margin", loss_arguments={"learn_beta": True, "beta": 1.1}
    )
    assert build_loss_layer(learned, 3).initial_boundary == 1.1
    assert build_loss_layer(Recipe.of(loss="margin"), 3) is None
