"""Whole tables as data: losses x methods on one data set."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from training.recipes.glyphs import GAP as GLYPHS
from training.recipes.own_images import FEATURES, RECIPES
from training.recipes.published import published_recipe
from training.recipes.recipe import PAIR_LOSSES, PROXY_LOSSES, Recipe
from training.recipes.setting import LARGE, SMALL

LOSSES = ("c2", "ms", "proxy-anchor")
METHODS = {
    "gap": {"pooling": "gap"},
    "gsp": {"pooling": "gsp"},
    "gsp-zsr": {"pooling": "gsp", "regularizer": "zsr"},
    "xml": {"pooling": "gap", "regularizer": "xml"},
    "ccp": {
        "pooling": "gap",
        "ccp": "on",
        "normalization": "ball",
        "proxies_per_class": 4,
        "proxy_learning_rate_multiplier": 1.0,
    },
}


@dataclass(frozen=True)
class Study:
    """Recipes of a table, by row and column.

    Args:
        title: What stands above the table.
        cells: (loss, method) -> recipe.
    """

    title: str
    cells: Mapping[tuple[str, str], Recipe] = field(default_factory=dict)


def grid(title: str, base: Recipe, losses=LOSSES, methods=None) -> Study:
    """Every loss with every method."""
    return Study(
        title,
        {
            (loss, method): replace(base, loss=loss, **settings)
            for loss in losses
            for method, settings in METHODS.items()
            if method in (methods or METHODS)
        },
    )


def _published(dataset):
    """What the papers print: CCP with pair losses only."""
    losses = ("c1", "c2", "ms", "triplet", "proxy-anchor", "proxy-nca")
    return Study(
        f"{dataset}, published settings",
        {
            (loss, method): published_recipe(dataset, method, loss)
            for loss in losses
            for method in METHODS
            if method != "ccp" or loss not in PROXY_LOSSES
        },
    )


_SHORT = {"protocol": "fair", "repeats": 1}
STUDIES = {
    # Every loss at one small budget, chosen on validation letters.
    "glyphs": grid(
        "glyphs, every loss",
        replace(GLYPHS, steps=400, steps_per_evaluation=100, repeats=1),
        losses=(*PAIR_LOSSES, *PROXY_LOSSES),
        methods=("gap", "gsp", "gsp-zsr", "xml"),
    ),
    # 25 classes to learn from, 25 unseen; 60 models.
    "birds50": grid(
        "birds50, frozen MobileNetV2 features",
        replace(FEATURES, steps=200, steps_per_evaluation=50, **_SHORT),
    ),
    # Brings its own validation classes; three seeds of one model. Here and
    # below nothing is pretrained: CCP begins with pairs within the batch.
    "collage": grid(
        "CIFAR collage",
        replace(
            RECIPES["collage"],
            steps=400,
            steps_per_evaluation=100,
            classes_per_batch=3,
            samples_per_class=16,
            images_per_class=1000,
            ccp_warmup=1,
            repeats=3,
        ),
        losses=("c2",),
    ),
    "omniglot": grid(
        "Omniglot, small background set",
        replace(
            RECIPES["omniglot"],
            steps=200,
            steps_per_evaluation=50,
            ccp_warmup=2,
            **_SHORT,
        ),
        losses=("c2",),
    ),
    **{dataset: _published(dataset) for dataset in SMALL + LARGE},
}
