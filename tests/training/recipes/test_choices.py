"""The command line finds losses and poolings of the package by itself."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.layers.pooling.feature_pooling import FeaturePooling
from training.recipes.choices import (
    KINDS,
    is_list_loss,
    is_pair_loss,
    is_proxy_loss,
    loss_arguments,
    losses,
    poolings,
)
from training.recipes.learner import build_loss, build_loss_layer
from training.recipes.recipe import Recipe

PAPERS = {
    "c1": gsp.losses.CosineContrastiveLoss,
    "c2": gsp.losses.ContrastiveLoss,
    "ms": gsp.losses.MultiSimilarityLoss,
    "n-pair": gsp.losses.NPairLoss,
    "proxy-nca": gsp.losses.ProxyNCALoss,
    "smooth-ap": gsp.losses.SmoothAPLoss,
    "soft-triple": gsp.losses.SoftTripleLoss,
    "recall-at-k": gsp.losses.RecallAtKLoss,
    "libc": gsp.losses.IntraBatchLoss,
}


def test_every_exported_loss_and_pooling_has_a_word():
    exported = [getattr(gsp.losses, name) for name in gsp.losses.__all__]
    metric = {
        kind
        for kind in exported
        if issubclass(kind, gsp.losses.MetricLoss) and kind not in KINDS
    }
    assert {*losses().values()} == metric and len(metric) > 15
    assert {word: losses()[word] for word in PAPERS} == PAPERS
    exported = [getattr(gsp.layers, name) for name in gsp.layers.__all__]
    found = {kind for kind in exported if issubclass(kind, FeaturePooling)}
    assert {*poolings().values()} == found | {
        keras.layers.GlobalAveragePooling2D,
        keras.layers.GlobalMaxPooling2D,
    }
    assert poolings()["gem-gsp"] is gsp.layers.GeneralizedSumPooling


@pytest.mark.parametrize("word", losses())
def test_every_loss_is_built_with_its_arguments(word):
    changed = {
        name: 1.01 * value if isinstance(value, float) else value
        for name, value in vars(loss_arguments(word)).items()
    }
    if "k" in changed:
        changed["k"] = list(changed["k"])  # as in settings.json
    recipe = Recipe.of(
        loss=word, loss_arguments=changed, normalization="ball", seed=3
    )
    built = build_loss(recipe)
    assert type(built) is losses()[word]
    assert {name: getattr(built, name) for name in changed} == changed
    if is_pair_loss(word):
        assert built.normalization == "ball"
        embeddings = np.random.default_rng(0).normal(size=(6, 4))
        assert np.isfinite(built([0, 0, 1, 1, 2, 2], embeddings))
    assert is_pair_loss(word) == isinstance(built, gsp.losses.PairLoss)
    assert is_list_loss(word) == isinstance(built, gsp.losses.ListLoss)
    assert is_proxy_loss(word) == isinstance(built, gsp.losses.ProxyLoss)


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
