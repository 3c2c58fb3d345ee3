"""The data set of a recipe."""

import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from training.datasets.image_set import RetrievalSplits
from training.recipes.recipe import OWN_SPLITS, Recipe

# Data sets whose images are files of any size.
FILES = ("cub", "cars", "sop", "inshop", "folder", "csv", "omniglot")


def load_splits(recipe: Recipe) -> RetrievalSplits:
    """Reads or renders the data set that a recipe names.

    Without validation classes in the data set, the recipe's fold of the
    training classes validates.
    """

    def checked(splits):
        splits = _with_validation(recipe, splits)
        check_classes(recipe, splits)
        return splits

    return checked(read_recipe(recipe, checked))


def fitted_to_classes(recipe: Recipe) -> Recipe:
    """Returns a recipe whose batches take no more classes than there are.

    For a folder or list of one's own, whose number of classes a default cannot
    know; warns where it changes the recipe.
    """
    if recipe.dataset not in OWN_SPLITS:
        return recipe
    from training.datasets.reading import READERS

    own = _own_settings(recipe)
    if recipe.dataset == "csv":
        own["on_missing"] = recipe.corrupt_images
    splits = READERS[recipe.dataset](recipe.data_dir, **own)
    count = _with_validation(recipe, splits).train.num_classes
    if recipe.classes_per_batch <= count:
        return recipe
    warnings.warn(
        f"Batches have all {count} training classes, fewer than the recipe's "
        f"{recipe.classes_per_batch}.",
        stacklevel=2,
    )
    return recipe.with_(classes_per_batch=count)


def _with_validation(recipe, splits):
    if splits.validation is not None:
        return splits
    fold = recipe.validation_folds, recipe.validation_fold
    return splits.with_validation(*fold)


def read_recipe(
    recipe: Recipe, check: Callable[[RetrievalSplits], Any] | None = None
) -> RetrievalSplits:
    """Reads a recipe's data set, with or without a validation side.

    `check` raises for unsuitable classes. It is called as soon as they are
    known, with splits that may have no pixels, and again after unusable files
    are left out.
    """
    _check_settings(recipe)
    own = _own_settings(recipe)
    if recipe.dataset == "glyphs":
        from training.datasets import glyphs

        splits = glyphs.load(has_distractors=recipe.distractors, **own)
    else:
        from training.datasets.reading import read_splits

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
    if check is not None:
        check(splits)
    if recipe.cache_features:
        from training.recipes.features import with_features

        return with_features(recipe, splits)
    if recipe.cache_images:
        from training.recipes.batches import with_pixels

        return with_pixels(recipe, splits)
    return splits


def _own_settings(recipe):
    """The arguments of a data set's reader that a recipe sets."""
    own: dict[str, Any] = {
        "num_train_classes": recipe.train_classes,
        "images_per_class": recipe.images_per_class,
        "canvas_size": recipe.canvas_size,
        "decisions": recipe.decisions,
    }
    return {name: value for name, value in own.items() if value is not None}


def needed_sources(recipe: Recipe) -> tuple[str, ...]:
    """Returns which of `data_dir` and `backbone_weights` must be given."""
    if recipe.dataset == "glyphs":
        return ()
    is_frozen = recipe.frozen != "none" and not recipe.hub_preset
    needed = {
        "data_dir": recipe.source == "disk",
        "backbone_weights": is_frozen,
    }
    return tuple(name for name, is_it in needed.items() if is_it)


def check_sources(recipe: Recipe) -> None:
    """Checks that images and weights are there, before any image is read.

    Their classes check the arguments of loss and pooling. Downloads ImageNet's
    weights, or pretrains on characters, if necessary.
    """
    _check_settings(recipe)
    from training.recipes.encoder import build_pooling
    from training.recipes.learner import build_loss

    build_loss(recipe)
    build_pooling(recipe)
    if recipe.hub_preset and importlib.util.find_spec("keras_hub") is None:
        raise ValueError(
            '`backbone` must be one that is installed: pip install "keras-gsp'
            f'[hub]". Received: backbone={recipe.backbone}.'
        )
    weights = recipe.backbone_weights
    names = ["backbone_weights", "decisions"]
    names += ["data_dir"] if recipe.source == "disk" else []
    for name in names:
        path = getattr(recipe, name)
        is_word = path in (None, "imagenet", "characters")
        if not is_word and not Path(path).expanduser().exists():
            raise FileNotFoundError(
                f"`{name}` must exist. Received: {name}={path}."
            )
    if weights == "characters":
        from training.recipes.glyph_network import character_weights

        character_weights(recipe.backbone)
    if weights == "imagenet":
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


def _check_settings(recipe):
    needed = needed_sources(recipe)
    if "data_dir" in needed and recipe.data_dir is None:
        raise ValueError(
            "`data_dir` must name the folder or archive of "
            f"dataset={recipe.dataset}: --data-dir PATH. "
            "Received: data_dir=None."
        )
    is_file = recipe.dataset in FILES and recipe.source == "disk"
    if is_file and recipe.crop_size is None:
        raise ValueError(
            f"`crop_size` must be given for dataset={recipe.dataset}, whose "
            "images are files of any size. Received: crop_size=None."
        )
    if "backbone_weights" in needed and recipe.backbone_weights is None:
        raise ValueError(
            "`backbone_weights` must name a weights file with frozen="
            f"{recipe.frozen}: --backbone-weights FILE, or imagenet for "
            "mobilenet-v2 and resnet50. To train from random weights: "
            "--frozen none. Received: backbone_weights=None."
        )
