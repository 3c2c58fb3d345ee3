"""Every word for a loss or a miner makes one."""

from typing import get_args

import numpy as np
import pytest

import keras_gsp as gsp
from training.recipes.loss import LOSSES, build_loss, build_loss_layer
from training.recipes.recipe import (
    CLASSIFIER_LOSSES,
    LIST_LOSSES,
    PAIR_LOSSES,
    PROXY_LOSSES,
    Miner,
    Recipe,
)


def test_every_word_has_its_line():
    words = {*PAIR_LOSSES, *PROXY_LOSSES, *CLASSIFIER_LOSSES}
    assert set(LOSSES) == words


@pytest.mark.parametrize("loss", LOSSES)
def test_every_argument_comes_from_its_field(loss):
    kind, fields = LOSSES[loss]
    values = {
        field: not getattr(Recipe(), field)
        if field == "learn_boundary"
        else 0.3 + 0.01 * place
        for place, field in enumerate(fields.values())
    }
    built = build_loss(Recipe(loss=loss, **values))
    assert type(built) is kind
    assert {name: getattr(built, name) for name in fields} == {
        name: values[field] for name, field in fields.items()
    }


@pytest.mark.parametrize("loss", PAIR_LOSSES)
def test_words_of_pair_losses_make_pair_losses(loss):
    built = build_loss(Recipe(loss=loss, normalization="ball"))
    assert isinstance(built, gsp.losses.PairLoss)
    assert isinstance(built, gsp.losses.ListLoss) == (loss in LIST_LOSSES)
    assert built.normalization == "ball"
    embeddings = np.random.default_rng(0).normal(size=(6, 4))
    assert np.isfinite(built([0, 0, 1, 1, 2, 2], embeddings))


@pytest.mark.parametrize("loss", PROXY_LOSSES)
def test_words_of_proxy_losses_make_proxy_losses(loss):
    assert isinstance(build_loss(Recipe(loss=loss)), gsp.losses.ProxyLoss)


@pytest.mark.parametrize("loss", CLASSIFIER_LOSSES)
def test_words_of_classifiers_make_a_loss_with_its_layer(loss):
    assert build_loss(Recipe(loss=loss)).needs == ("loss_layer",)
    layer = build_loss_layer(Recipe(loss=loss), 3)
    assert layer.num_classes == 3


@pytest.mark.parametrize(
    "miner", [word for word in get_args(Miner) if word != "none"]
)
def test_words_of_miners_make_miners(miner):
    built = build_loss(Recipe(loss="margin", miner=miner, seed=3))
    assert built.miner == miner.replace("-", "_")
    assert built.seed == 3


def test_a_learned_boundary_has_its_layer():
    recipe = Recipe(loss="margin", learn_boundary=True, boundary=1.1)
    assert build_loss(recipe).learn_beta
    assert build_loss_layer(recipe, 3).initial_boundary == 1.1
    assert build_loss_layer(Recipe(loss="margin"), 3) is None
