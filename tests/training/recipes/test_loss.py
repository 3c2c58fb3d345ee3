"""Every word for a loss or a miner makes one."""

from typing import get_args

import numpy as np
import pytest

import keras_gsp as gsp
from training.recipes.loss import build_loss, build_loss_layer
from training.recipes.recipe import (
    LIST_LOSSES,
    PAIR_LOSSES,
    PROXY_LOSSES,
    Miner,
    Recipe,
)


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


@pytest.mark.parametrize(
    "miner", [word for word in get_args(Miner) if word != "none"]
)
def test_words_of_miners_make_miners(miner):
    built = build_loss(Recipe(loss="margin", miner=miner, seed=3))
    assert built.miner == miner.replace("-", "_")
    assert built.seed == 3


def test_a_learnt_boundary_has_its_layer():
    recipe = Recipe(loss="margin", learn_boundary=True, boundary=1.1)
    assert build_loss(recipe).learn_beta
    assert build_loss_layer(recipe).initial_boundary == 1.1
    assert build_loss_layer(Recipe(loss="margin")) is None
