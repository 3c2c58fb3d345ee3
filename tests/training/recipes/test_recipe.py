import inspect
from dataclasses import fields, replace

import pytest

from training.recipes import own_images
from training.recipes.choice import RecipeOptions, named_recipes, run_name
from training.recipes.glyphs import RECIPES
from training.recipes.ranges import literal_words
from training.recipes.recipe import SECTIONS, Recipe
from training.research.studies import SAMPLED, STUDIES


@pytest.mark.parametrize(
    "arguments",
    [
        {"loss": "c3"},
        {"dataset": "birds"},
        {"transport_ratio": 0.0},
        {"transport_ratio": 1.5},
        {"transport_ratio": float("nan")},
        {"num_prototypes": 0},
        {"inverse_temperature": -1.0},
        {"regularizer_weight": 1.2},
        {"power": 1.0},
        {"gemax_ridge": 0.0},
        {"canvas_size": 160},
        {"samples_per_class": 1},
        {"patience": 0},
        {"seed": -1},
        {"steps": 150},
        {"validation_fold": 4},
        {"memory": "xbm", "loss": "proxy-nca"},
        {"ccp_warmup": 1, "loss": "soft-triple"},
        {"in_batch_weight": 0.5, "loss": "proxy-anchor"},
        {"in_batch_weight": 0.5},
        {"miner": "batch-hard", "loss": "smooth-ap"},
        {"miner": "semi-hard", "loss": "arcface"},
        {"patience": 3, "ccp": "on"},
        {"batch_chunks": 3},
        {"log_regularizer_share": True},
        {"memory": "xbm", "ccp": "on"},
        {"classes_per_batch": 1, "regularizer": "zsr"},
        {"memory_capacity": 63, "memory": "xbm"},
        {"memory_warmup_steps": 900, "memory": "xbm"},
        {"warmup_steps": 900},
        {"ccp_warmup": 9, "ccp": "single"},
        {"ccp_pool": "recent", "ccp": "single"},
        {"ccp_pool_size": 3, "ccp": "on", "proxies_per_class": 4},
        {
            "histogram_inverse_temperature": 5.0,
            "regularizer": "xml",
            "pooling": "gem-gsp",
        },
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_value(arguments):
    name, value = next(iter(arguments.items()))
    with pytest.raises(ValueError, match=f"`{name}` must be .*{name}={value}"):
        Recipe(**arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        # Nothing is trained: nothing has to begin.
        {
            "steps": 0,
            "warmup_steps": 9,
            "memory": "xbm",
            "memory_warmup_steps": 9,
        },
        {"steps": 0, "ccp": "single", "ccp_warmup": 9},
        {"memory_capacity": 64, "memory": "xbm", "memory_warmup_steps": 899},
        {"memory_capacity": 1, "memory_warmup_steps": 900},
        {"warmup_steps": 899},
        {"ccp_warmup": 8, "ccp": "single"},
        {"ccp_pool": "recent", "ccp": "on"},
        {"ccp_pool_size": 4, "ccp": "on", "proxies_per_class": 4},
        {"ccp_pool_size": 3, "proxies_per_class": 4, "loss": "soft-triple"},
        {"anchor_weight": 0.0, "ccp": "on"},
        {"histogram_inverse_temperature": 5.0, "pooling": "gsp"},
        {"histogram_inverse_temperature": 5.0, "regularizer": "xml"},
        {"histogram_inverse_temperature": 5.0, "regularizer": "zsr"},
    ],
)
def test_what_has_an_effect_or_is_not_used_is_allowed(arguments):
    recipe = Recipe(**arguments)
    assert {name: getattr(recipe, name) for name in arguments} == arguments


def test_every_word_of_every_field_makes_a_recipe():
    for field in fields(Recipe):
        for word in literal_words(field.type):
            assert getattr(Recipe(**{field.name: word}), field.name) == word


def test_every_field_says_what_it_is():
    source = inspect.getsource(inspect.getmodule(Recipe))
    for field in fields(Recipe):
        declaration = source.partition(f"    {field.name}: ")[2]
        assert declaration.splitlines()[1].strip().startswith('"""')


def test_every_field_stands_in_one_group():
    grouped = [
        field.name for section in SECTIONS.values() for field in fields(section)
    ]
    assert sorted(grouped) == sorted(field.name for field in fields(Recipe))
    recipe = RECIPES["glyphs-gsp-zsr"]
    assert RecipeOptions.of(recipe).recipe == recipe


def test_methods_differ_from_the_baseline_in_what_their_name_says():
    changed = {
        name: {
            field: value
            for field, value in vars(RECIPES[name]).items()
            if value != getattr(RECIPES["glyphs-gap"], field)
        }
        for name in ("glyphs-gsp", "glyphs-gsp-zsr", "glyphs-triplet-xml")
    }
    assert changed == {
        "glyphs-gsp": {"pooling": "gsp"},
        "glyphs-gsp-zsr": {"pooling": "gsp", "regularizer": "zsr"},
        "glyphs-triplet-xml": {"loss": "triplet", "regularizer": "xml"},
    }


def test_the_run_name_says_what_was_changed():
    recipe = replace(
        named_recipes()["glyphs"],
        loss="ms",
        seed=3,
        data_dir="/data",
        backbone_weights="/weights/network.h5",
    )
    assert run_name("glyphs", recipe) == (
        "glyphs,backbone_weights=network.h5,loss=ms,seed=3"
    )


def test_a_recipe_that_cannot_alternate_says_what_to_do():
    with pytest.raises(ValueError, match="`single`.*or lower ccp_patience"):
        Recipe(ccp="on", steps=200, steps_per_evaluation=50)
    Recipe(ccp="single", steps=200, steps_per_evaluation=50)
    Recipe(ccp="on", steps=200, steps_per_evaluation=40)


@pytest.mark.parametrize("name", sorted(RECIPES | own_images.RECIPES))
def test_sampled_proxies_are_trained_as_the_studies_found(name):
    recipe = named_recipes()[name]
    if recipe.samples_proxies:
        found = {field: getattr(recipe, field) for field in SAMPLED}
        size = 12 if recipe.dataset == "glyphs" else SAMPLED["ccp_pool_size"]
        assert found == SAMPLED | {"ccp_pool_size": size}
    else:
        assert not name.endswith(("ccp", "ccp-gsp", "proxies"))


def test_glyphs_start_proxies_after_a_third_of_training_as_their_study():
    study, recipe = STUDIES["glyphs"].cells["c2", "ccp"], RECIPES["glyphs-ccp"]
    for field in (*SAMPLED, "steps_per_evaluation"):
        assert getattr(recipe, field) == getattr(study, field)
    for one in (recipe, study):
        start = one.ccp_warmup * one.steps_per_evaluation
        assert 3 * start == one.steps


def test_every_ms_recipe_from_random_weights_starts_with_a_soft_loss():
    recipes = {name: r for name, r in RECIPES.items() if r.loss == "ms"}
    cells = STUDIES["glyphs"].cells
    studied = [recipe for (row, _), recipe in cells.items() if row == "ms"]
    assert {"glyphs-ms", "glyphs-ms-gsp", "glyphs-ms-ccp"} <= set(recipes)
    assert len(studied) == 7
    assert {r.ms_beta for r in [*recipes.values(), *studied]} == {10.0}
    assert own_images.RECIPES["folder-ms-ccp"].ms_beta == 40.0
