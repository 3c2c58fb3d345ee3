"""Which words, numbers and combinations a recipe may hold."""

from dataclasses import fields
from typing import Literal, get_args, get_origin

POSITIVE = (
    "crop_size",
    "num_prototypes",
    "inverse_temperature",
    "histogram_inverse_temperature",
    "ridge",
    "embedding_size",
    "proxies_per_class",
    "repeats",
    "train_classes",
    "images_per_class",
    "ms_alpha",
    "ms_beta",
    "proxy_temperature",
    "anchor_alpha",
    "soft_triple_scale",
    "soft_triple_gamma",
    "memory_capacity",
    "ccp_pool_size",
    "ccp_patience",
    "classes_per_batch",
    "steps",
    "steps_per_evaluation",
    "patience",
    "learning_rate",
    "proxy_learning_rate_multiplier",
)
NOT_NEGATIVE = (
    "positive_margin",
    "ms_mining_margin",
    "soft_triple_tau",
    "memory_warmup_steps",
    "ccp_warmup",
    "anchor_weight",
    "in_batch_weight",
    "warmup_steps",
    "weight_decay",
    "seed",
)
AT_LEAST_TWO = ("samples_per_class", "validation_folds")
UP_TO_ONE = ("transport_ratio", "anchor_decay")
SHARES = ("regularizer_weight",)


def check_recipe(recipe):
    """Raises `ValueError` at the first field that cannot be meant."""
    _check_words(recipe)
    _check_numbers(recipe)
    _check_combination(recipe)


def literal_words(annotation) -> tuple[str, ...]:
    """The words of a `Literal`, or of a union of them; else none."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return tuple(
        word for part in get_args(annotation) for word in literal_words(part)
    )


def _check_words(recipe):
    for field in fields(recipe):
        words = literal_words(field.type)
        if words:
            is_known = getattr(recipe, field.name) in words
            expectation = f"one of {', '.join(words)}"
            _require(recipe, field.name, is_known, expectation)


def _check_numbers(recipe):
    ranges = (
        (POSITIVE, lambda value: value > 0, "positive"),
        (NOT_NEGATIVE, lambda value: value >= 0, "0 or more"),
        (AT_LEAST_TWO, lambda value: value >= 2, "2 or more"),
        (UP_TO_ONE, lambda value: 0 < value <= 1, "in (0, 1]"),
        (SHARES, lambda value: 0 <= value <= 1, "in [0, 1]"),
        (("power",), lambda value: value > 1, "above 1"),
    )
    for names, is_within, expectation in ranges:
        for name in names:
            value = getattr(recipe, name)
            is_met = value is None or is_within(value)
            _require(recipe, name, is_met, expectation)


def _check_combination(recipe):
    _require(
        recipe,
        "steps",
        recipe.steps % recipe.steps_per_evaluation == 0,
        f"a multiple of steps_per_evaluation={recipe.steps_per_evaluation}",
    )
    _require(
        recipe,
        "validation_fold",
        0 <= recipe.validation_fold < recipe.validation_folds,
        f"in [0, validation_folds={recipe.validation_folds})",
    )
    for name, off in (
        ("memory", "none"),
        ("ccp_warmup", 0),
        ("in_batch_weight", 0.0),
    ):
        is_met = not recipe.uses_proxy_loss or getattr(recipe, name) == off
        _require(recipe, name, is_met, f"{off} with loss={recipe.loss}")
    _require(
        recipe,
        "memory",
        recipe.memory == "none" or recipe.ccp == "off",
        f"`none` with ccp={recipe.ccp}",
    )
    _require(
        recipe,
        "train_classes",
        recipe.train_classes is None or recipe.dataset in ("folder", "csv"),
        f"None with dataset={recipe.dataset}, whose split is published",
    )
    _require(
        recipe,
        "images_per_class",
        recipe.images_per_class is None or recipe.dataset == "collage",
        f"None with dataset={recipe.dataset}",
    )
    _require(
        recipe,
        "cache_features",
        not recipe.cache_features
        or (recipe.frozen == "all" and recipe.augmentation == "none"),
        "False unless frozen=all and augmentation=none",
    )
    _require(
        recipe,
        "classes_per_batch",
        recipe.regularizer == "none" or recipe.classes_per_batch > 1,
        f"2 or more with regularizer={recipe.regularizer}",
    )


def _require(recipe, name, is_met, expectation):
    if not is_met:
        raise ValueError(
            f"`{name}` must be {expectation}. "
            f"Received: {name}={getattr(recipe, name)}."
        )
