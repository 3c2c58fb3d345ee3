"""No number and no word of a recipe is unchecked."""

from dataclasses import fields, replace

import pytest

from training.recipes.ranges import (
    Range,
    at_least,
    field_rules,
    not_negative,
    positive,
    share,
    up_to_one,
)
from training.recipes.recipe import Recipe

RULES = field_rules(Recipe)
NUMBERS = [
    name for name, (kinds, _, _) in RULES.items() if kinds & {int, float}
]
WORDS = [name for name, (_, words, _) in RULES.items() if words]


def test_every_field_has_its_rule():
    assert {*RULES} == {field.name for field in fields(Recipe)}
    for name, (kinds, words, numbers) in RULES.items():
        if kinds & {int, float}:
            assert isinstance(numbers, Range), f"{name} has no range"
        else:
            assert words or kinds & {str, bool}, name


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_outside_their_range_are_refused(name):
    numbers = RULES[name][2]
    outside = [float("nan"), float("inf"), "1", True]
    outside.append(-1e9)
    if numbers.at_most is not None:
        outside.append(numbers.at_most + 1)
    if numbers.above is not None:
        outside.append(numbers.above)
    if float not in RULES[name][0]:
        outside.append(2.5)
    for value in outside:
        with pytest.raises(ValueError, match=f"`{name}` must be"):
            Recipe(**{name: value})


@pytest.mark.parametrize("name", WORDS)
def test_unknown_words_are_refused(name):
    with pytest.raises(ValueError, match=f"`{name}` must be one of"):
        Recipe(**{name: "no such word"})


@pytest.mark.parametrize("name", ["cache_features", "jit_compile", "data_dir"])
def test_other_kinds_of_values_are_refused(name):
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        Recipe(**{name: 3})


@pytest.mark.parametrize(
    "numbers, inside, outside, words",
    [
        (positive, [1e-9, 7], [0, -1], "positive"),
        (not_negative, [0, 2.5], [-1e-9], "0 or more"),
        (at_least(2), [2], [1], "2 or more"),
        (up_to_one, [1e-9, 1], [0, 1.1], "in (0, 1]"),
        (share, [0, 1], [-0.1, 1.1], "in [0, 1]"),
        (Range(above=1), [1.1], [1], "above 1"),
    ],
)
def test_a_range_says_what_it_holds(numbers, inside, outside, words):
    assert all(number in numbers for number in inside)
    assert not any(number in numbers for number in outside)
    assert str(numbers) == words


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"steps": 50}, "multiple of steps_per_evaluation"),
        ({"validation_fold": 4}, "validation_folds=4"),
        ({"loss": "proxy-nca", "memory": "xbm"}, "`memory` must be none"),
        ({"in_batch_weight": 1.0}, "`in_batch_weight` must be None"),
        ({"memory": "xbm", "ccp": "single"}, "`memory`"),
        ({"loss": "proxy-nca", "ccp": "learned"}, "are learned anyway"),
        ({"loss": "libc", "ccp": "single"}, "which has no proxies"),
        ({"loss": "libc", "memory": "xbm"}, "`memory` must be none"),
        ({"samples_per_class": 1}, "learns from pairs"),
        ({"resize": 8}, "`resize` must be None or at least"),
        ({"crop_size": 8, "resize": 7}, "at least crop_size=8"),
        ({"cache_images": True}, "`cache_images`"),
        ({"ccp": "on", "steps": 400}, "no second problem begins in fewer"),
    ],
)
def test_contradictions_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**settings)


def test_alternation_that_fits_is_accepted():
    recipe = Recipe(ccp="on", steps=500)
    assert recipe.evaluations == 5
    assert replace(recipe, steps=400, ccp="single").evaluations == 4
