"""The data set of a recipe."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from training.datasets.image_set import RetrievalSplits
from training.recipes.recipe import HUB_PREFIX, Recipe


def load_splits(recipe: Recipe) -> RetrievalSplits:
    """Reads or renders the data set that a recipe names.

    Without validation classes in the data set, the recipe's fold of the
    training classes validates.
    """
    checked = read_recipe(recipe, lambda found: _validated(recipe, found))
    return _validated(recipe, checked)


def _validated(recipe, splits):
    """Returns splits with a validation side and enough classes."""
    if splits.validation is None:
        if splits.train.num_classes < recipe.validation_folds:
            raise ValueError(
                "`validation_folds` must be at most the training classes. "
                f"Received: validation_folds={recipe.validation_folds} for "
                f"{splits.train.num_classes} training classes of "
                f"{splits.name}."
            )
        splits = splits.with_validation(
            recipe.validation_folds, recipe.validation_fold
        )
    check_classes(recipe, splits)
    return splits


# Data sets whose images are files of any size.
_FILES = ("cub", "cars", "sop", "inshop", "folder", "csv", "omniglot")


def needed_sources(recipe: Recipe) -> tuple[str, ...]:
    """Returns which of `data_dir` and `backbone_weights` must be given."""
    is_hub = recipe.backbone.startswith(HUB_PREFIX)
    needed = {
        "data_dir": recipe.source == "disk",
        "backbone_weights": recipe.frozen != "none" and not is_hub,
    }
    is_read = recipe.dataset != "glyphs"
    return tuple(name for name, is_it in needed.items() if is_it and is_read)


def _check_named(recipe):
    needed = needed_sources(recipe)
    if "data_dir" in needed and recipe.data_dir is None:
        raise ValueError(
            "`data_dir` must name the folder or archive of "
            f"dataset={recipe.dataset}: --data-dir PATH. "
            "Received: data_dir=None."
        )
    is_file = recipe.dataset in _FILES and recipe.source == "disk"
    if is_file and recipe.crop_size is None:
        raise ValueError(
            f"`crop_size` must be given for dataset={recipe.dataset}, whose "
            "images are files of any size. Received: crop_size=None."
        )
    if "backbone_weights" in needed and recipe.backbone_weights is None:
        raise ValueError(
            "`backbone_weights` must name a weights file with frozen="
            f"{recipe.frozen}, or the frozen part stays random: "
            "--backbone-weights FILE (or imagenet for mobilenet-v2 and "
            "resnet50). To train from random weights: --frozen none. "
            "Received: backbone_weights=None."
        )


def check_sources(recipe: Recipe) -> None:
    """Checks that images and weights are there, before any image is read.

    Downloads ImageNet's weights, or pretrains on characters, if necessary.
    """
    _check_named(recipe)
    if recipe.backbone.startswith(HUB_PREFIX):
        from training.recipes.hub_backbone import check_installed

        check_installed(recipe.backbone)
    places = {"backbone_weights": recipe.backbone_weights}
    if recipe.source == "disk":
        places["data_dir"] = recipe.data_dir
    for name, path in places.items():
        if path in (None, "imagenet", "characters"):
            continue
        if not Path(path).expanduser().exists():
            raise FileNotFoundError(
                f"`{name}` must exist. Received: {name}={path}."
            )
    if recipe.backbone_weights == "characters":
        from training.recipes.glyph_network import character_weights

        character_weights(recipe.backbone)
    if recipe.backbone_weights == "imagenet":
        from training.recipes.backbone import fetch_imagenet_weights

        fetch_imagenet_weights(recipe)


def check_classes(recipe: Recipe, splits: RetrievalSplits) -> None:
    """Raises `ValueError` unless the training classes fill a batch."""
    if splits.train.num_classes < recipe.classes_per_batch:
        raise ValueError(
            "`classes_per_batch` must be at most the number of training "
            f"classes. Received: classes_per_batch={recipe.classes_per_batch} "
            f"for {splits.train.num_classes} training classes of "
            f"{splits.name}."
        )


def read_recipe(
    recipe: Recipe, check: Callable[[RetrievalSplits], Any] | None = None
) -> RetrievalSplits:
    """Reads a recipe's data set, with or without a validation side.

    `check` raises for unsuitable classes. It is called as soon as they are
    known, with splits that may have no pixels, and again after unusable files
    are left out.
    """
    _check_named(recipe)
    own: dict[str, Any]
    if recipe.dataset == "glyphs":
        from training.datasets import glyphs

        own = {"has_distractors": recipe.distractors}
        if recipe.canvas_size is not None:
            own["canvas_size"] = recipe.canvas_size
        splits = glyphs.load(**own)
        _apply(check, splits)
        return _prepared(recipe, splits)
    from training.datasets.reading import read_splits

    own = {}
    if recipe.train_classes is not None:
        own["num_train_classes"] = recipe.train_classes
    if recipe.images_per_class is not None:
        own["images_per_class"] = recipe.images_per_class
    if recipe.canvas_size is not None:
        own["canvas_size"] = recipe.canvas_size
    if recipe.dataset == "collage":
        own["distilled"] = not recipe.distractors
    splits = read_splits(
        recipe.dataset,
        recipe.data_dir,
        source=recipe.source,
        on_corrupt=recipe.corrupt_images,
        check=check,
        **own,
    )
    _apply(check, splits)
    return _prepared(recipe, splits)


def _prepared(recipe, splits):
    """Returns splits of features or of cropped images, if they are kept."""
    if recipe.cache_features:
        from training.recipes.features import with_features

        return with_features(recipe, splits)
    if recipe.cache_images:
        from training.recipes.batches import with_pixels

        return with_pixels(recipe, splits)
    return splits


def _apply(check, splits):
    if check is not None:
        check(splits)
