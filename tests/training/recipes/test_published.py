"""The papers' settings stand in the recipes, each with its source."""

import pytest

from training.recipes import published
from training.recipes.named import named_recipes
from training.recipes.recipe import Recipe
from training.recipes.setting import LARGE, SMALL


def test_published_numbers_are_recipe_fields_with_a_source():
    groups = [
        published.SHARED,
        published.CONVENTIONAL,
        *published.LOSSES.values(),
        *(settings for _, settings in published.METHODS.values()),
    ]
    fields = Recipe.__dataclass_fields__
    for setting in (one for group in groups for one in group):
        assert setting.source
        assert set(setting.values) <= set(fields)


@pytest.mark.parametrize("loss", published.LOSSES)
def test_a_loss_has_the_same_numbers_set_on_every_data_set(loss):
    named = {
        dataset: sorted(
            name
            for setting in published.LOSSES[loss]
            if dataset in setting.datasets
            for name in setting.values
        )
        for dataset in SMALL + LARGE
    }
    assert named["cub"]
    assert all(names == named["cub"] for names in named.values())


def test_large_data_sets_have_their_own_settings():
    recipes = named_recipes()
    assert recipes["cub-gsp-zsr"].num_prototypes == 64
    assert recipes["sop-gsp-zsr"].num_prototypes == 128
    assert recipes["cub"].memory_capacity == 800
    assert recipes["inshop-xbm"].memory_capacity == 12_800
    assert recipes["cars-ccp"].proxies_per_class == 8
    assert recipes["sop-ccp"].proxies_per_class == 4
    assert recipes["cub-ccp"].normalization == "ball"
    assert recipes["cub-conventional"].embedding_size == 512
    assert recipes["cub-conventional"].protocol == "conventional"
    assert recipes["cub"].regularizer == "none"


def test_pair_losses_have_margins_of_their_data_set():
    recipes = named_recipes()
    margins = {
        name: recipes[name].negative_margin
        for name in ("cub", "cars-gsp", "sop-ccp", "inshop", "cub-conventional")
    }
    assert margins == {
        "cub": 0.3841,
        "cars-gsp": 0.5409,
        "sop-ccp": 0.5130,
        "inshop": 0.5130,
        "cub-conventional": 1.0,
    }
    assert recipes["cars"].positive_margin == 0.2652
    assert recipes["cars-conventional"].positive_margin == 0.0
    assert recipes["cub"].triplet_margin == 0.0961
    soft_triple = published.published_recipe("cars", loss="soft-triple")
    assert soft_triple.proxies_per_class == 10
    assert soft_triple.soft_triple_gamma == pytest.approx(1 / 19.18)
