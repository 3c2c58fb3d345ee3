"""Every loss and pooling of the package has a word."""

import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.layers.pooling.feature_pooling import FeaturePooling
from keras_gsp.losses.metric_loss import MetricLoss
from keras_gsp.losses.proxy_similarity import ProxyLoss
from training.recipes.choices import (
    LOSSES,
    PAIR_LOSSES,
    POOLINGS,
    PROXY_LOSSES,
    make_loss,
    make_pooling,
)
from training.recipes.learner import build_loss
from training.recipes.recipe import Recipe


def exported(room, kind):
    found = ((name, getattr(room, name)) for name in room.__all__)
    return {name for name, one in found if issubclass(one, kind)}


def test_every_exported_loss_and_pooling_has_a_word():
    losses = exported(gsp.losses, MetricLoss)
    assert losses - {"MatryoshkaLoss"} == {*LOSSES.values()}
    of_keras = {"GlobalAveragePooling2D", "GlobalMaxPooling2D"}
    found = {name for name, _ in POOLINGS.values()}
    assert found == exported(gsp.layers, FeaturePooling) | of_keras


def test_every_loss_is_made_and_of_its_kind():
    embeddings = np.random.default_rng(0).normal(size=(6, 4))
    for word in PAIR_LOSSES:
        loss = build_loss(Recipe.of(loss=word, normalization="ball"))
        assert loss.normalization == "ball"
        assert np.isfinite(loss([0, 0, 1, 1, 2, 2], embeddings))
    for word in PROXY_LOSSES:
        assert isinstance(build_loss(Recipe.of(loss=word)), ProxyLoss)


def test_classes_check_their_arguments():
    own = {"beta": 10.0, "miner": "batch_hard"}
    loss = build_loss(Recipe.of(loss="ms", loss_arguments=own))
    assert (loss.alpha, loss.beta, loss.miner) == (2.0, 10.0, "batch_hard")
    assert make_pooling("netvlad", num_clusters=4).num_clusters == 4
    for make, word, arguments, words in (
        (make_loss, "c2", {"negative_margin": -1.0}, "negative_margin"),
        (make_loss, "c2", {"beta": 1.0}, "ContrastiveLoss.*beta"),
        (make_pooling, "gap", {"ridge": 0.0}, "GlobalAverage.*ridge"),
    ):
        with pytest.raises(ValueError, match=words):
            make(word, **arguments)
