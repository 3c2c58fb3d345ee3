"""A recipe checks its settings, and choices imply theirs."""

import re
from dataclasses import fields

import pytest

from training.recipes.recipe import CHOICES, METHODS, Recipe, named, names

REFUSED = [
    {"loss": "c3"},
    {"pooling": "average"},
    {"backbone": "hub:"},
    {"dataset": "birds"},
    {"transport_ratio": 0.0},
    {"transport_ratio": float("nan")},
    {"num_prototypes": True},
    {"data_arguments": {"canvas_size": 160}, "dataset": "cub"},
    {"data_arguments": {"images_per_class": 9}},
    {"decisions": "list.csv"},
    {"resize": 32},
    {"resize": 32, "crop_size": 48},
    {"samples_per_class": 1},
    {"classes_per_batch": 1, "regularizer": "zsr"},
    {"lora_rank": 4, "steps": 0},
    {"lora_rank": 4, "frozen": "all", "cache_features": True},
    {"matryoshka_size": 128},
    {"matryoshka_size": 24},
    {"steps": 150},
    {"warmup_steps": 900},
    {"cache_features": True},
    {"cache_features": True, "frozen": "all", "augmentation": "mlrc"},
    {"memory": {"warmup_steps": 900}},
    {"ccp_arguments": {"pool": 9}},
    {"ccp": "on", "steps": 200, "steps_per_evaluation": 50},
    {"ccp_arguments": {"warmup": 9}, "ccp": "single"},
    {"patience": 3, "ccp": "on"},
]
ALLOWED = [
    {"lora_rank": 4, "frozen": "batch-norm"},
    {"matryoshka_size": 16, "loss": "proxy-nca"},
    # Nothing is trained: nothing has to begin.
    {"steps": 0, "warmup_steps": 9, "memory": {"capacity": 9}},
    {"steps": 0, "ccp": "single", "ccp_arguments": {"warmup": 9}},
    {"steps": 0, "projection_start": "learned"},
    {"steps": 60},
    {"memory": {"warmup_steps": 899}},
    {"warmup_steps": 899},
    {"ccp": "single", "ccp_arguments": {"warmup": 8}},
    {"ccp": "on", "steps": 200, "steps_per_evaluation": 40},
    {"ccp": "on", "patience": 4},
    {"resize": 48, "crop_size": 48},
]


@pytest.mark.parametrize("settings", REFUSED, ids=str)
def test_a_wrong_setting_is_refused_with_its_value(settings):
    name, value = next(iter(settings.items()))
    said = re.escape(f"{name}={value}")
    with pytest.raises(ValueError, match=f"`{name}` must be .*{said}"):
        Recipe.of(**settings)


def test_allowed_settings_are_kept():
    for settings in ALLOWED:
        recipe = Recipe.of(**settings)
        assert {name: getattr(recipe, name) for name in settings} == settings


def test_another_loss_has_its_own_defaults():
    recipe = Recipe.of(loss_arguments={"negative_margin": 0.7})
    assert recipe.with_(seed=3).loss_arguments == {"negative_margin": 0.7}
    other = recipe.with_(loss="ms", loss_arguments={"beta": 10.0})
    assert other.loss_arguments == {"beta": 10.0}
    assert other.with_(loss="c2").loss_arguments == {}
    both = recipe.with_(loss_arguments={"positive_margin": 0.1})
    assert both.loss_arguments.keys() == {"negative_margin", "positive_margin"}
    with pytest.raises(ValueError, match="Received: los. Similar: loss"):
        recipe.with_(los="ms")


def test_settings_give_the_recipe_back():
    recipe = named("glyphs", loss="ms", pooling="gem-gsp").with_(seed=3)
    settings = recipe.settings
    assert settings["loss_arguments"] == {"beta": 10.0}
    assert Recipe.from_settings(settings) == recipe
    assert len({recipe, Recipe.from_settings(settings)}) == 1
    assert recipe.with_(crop_size=96).shorter_side == 96
    with pytest.raises(ValueError, match="first teacher.*Train the run aga"):
        Recipe.from_settings(settings | {"teacher": "run"})


def test_every_number_has_a_range():
    plain = (int, float, int | None, float | None)
    assert not [field.name for field in fields(Recipe) if field.type in plain]


def test_choices_imply_their_settings():
    plain = named("glyphs")
    assert named("glyphs", pooling="gsp") == plain.with_(pooling="gsp")
    ms = named("glyphs", loss="ms", pooling="gsp", regularizer="zsr")
    # Soft enough for a network with random weights.
    assert ms.loss_arguments == {"beta": 10.0}
    # A head that starts from learned whitening, at a tenth of the rate.
    own = named("folder")
    assert (own.loss, own.pooling, own.loss_arguments) == ("ms", "gem", {})
    assert named("folder", pooling="gap").pooling == "gap"
    assert (own.projection_start, own.learning_rate) == ("learned", 1e-4)
    margins = named("folder", loss="c2").loss_arguments
    assert margins == {"negative_margin": 0.3841}
    # Own images start from ImageNet where Keras has its weights.
    for name in ("folder", "folder-features", "csv"):
        assert named(name).backbone_weights == "imagenet"
    assert named("folder", backbone="resnet50").backbone_weights == "imagenet"
    assert named("folder", backbone="glyph-cnn").backbone_weights is None
    proxies = named("glyphs", loss="proxy-nca")
    assert (proxies.samples_per_class, proxies.fall_share) == (2, 0.25)
    sampled = named("glyphs", ccp="on")
    assert (sampled.proxies_per_class, sampled.ccp_pool_size) == (4, 12)
    # A third of training comes before the first problem.
    warmup = sampled.ccp_warmup * sampled.steps_per_evaluation
    assert 3 * warmup == sampled.steps
    single = named("folder", ccp="single", loss="ms")
    assert (single.ccp_pool_size, single.normalization) == (7, "ball")
    exchanged = named("folder", ccp="on", loss="ms")
    rates = [x.proxy_learning_rate_multiplier for x in (single, exchanged)]
    assert (rates, single.in_batch_weight) == ([10.0, 0.1], 1.0)
    fine_tuned = named("folder", loss="proxy-anchor")
    assert (fine_tuned.samples_per_class, fine_tuned.warmup_steps) == (1, 100)


def test_every_name_has_a_recipe():
    for name, dataset in names().items():
        recipe = named(name)
        assert recipe.dataset == dataset
        method = name.removeprefix(f"{dataset}-")
        choices = METHODS.get(method, {})
        choices = {k: choices[k] for k in choices.keys() & {*CHOICES}}
        assert {k: getattr(recipe, k) for k in choices} == choices
        assert bool(recipe.memory) == method.startswith("xbm")
    with pytest.raises(ValueError, match="Received: recipe=glyphs-ms"):
        named("glyphs-ms")
