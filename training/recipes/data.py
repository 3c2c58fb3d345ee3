"""The data set of a recipe."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from keras_gsp.data.archives import cache_folder
from keras_gsp.data.listed_files import unreadable, unreadable_text
from training.datasets.collage import collage_splits
from training.datasets.image_set import RetrievalSplits
from training.datasets.layout import files_digest
from training.datasets.own_images import csv_splits, folder_splits
from training.datasets.published import PUBLISHED, published_splits
from training.recipes.recipe import OWN_SPLITS, VALIDATION_FOLDS, Recipe

SOURCES = {
    "data_dir": "the folder or archive of the data set: --data-dir PATH",
    "backbone_weights": (
        "a weights file of the frozen backbone: --backbone-weights FILE, or "
        "imagenet for mobilenet-v2 and resnet50. To train from random weights: "
        "--frozen none"
    ),
}

READERS: dict[str, Callable[..., RetrievalSplits]] = {
    **{name: partial(published_splits, name) for name in PUBLISHED},
    "collage": collage_splits,
    "csv": csv_splits,
    "folder": folder_splits,
}


def load_splits(
    recipe: Recipe, classes: dict[str, list[str]] | None = None
) -> RetrievalSplits:
    """Reads a recipe's data set, with validation classes.

    `classes` are the names that a run has on each side, and keeps there.
    """

    def checked(splits):
        splits = _with_validation(recipe, splits, classes)
        check_classes(recipe, splits)
        return splits

    return checked(read_recipe(recipe, checked))


def fitted_to_classes(
    recipe: Recipe, classes: dict[str, list[str]] | None = None
) -> Recipe:
    """Limits a batch to the classes of one's own images, with a warning."""
    if recipe.dataset not in OWN_SPLITS:
        return recipe
    splits = _with_validation(recipe, _undecoded(recipe), classes)
    count = splits.train.num_classes
    if recipe.classes_per_batch <= count:
        return recipe
    warnings.warn(
        f"Batches have all {count} training classes, fewer than the recipe's "
        f"{recipe.classes_per_batch}.",
        stacklevel=2,
    )
    return recipe.with_(classes_per_batch=count)


def read_recipe(
    recipe: Recipe,
    check: Callable[[RetrievalSplits], Any] = lambda splits: None,
) -> RetrievalSplits:
    """Reads a recipe's data set, with or without a validation side.

    `check` raises for unsuitable classes: before files are decoded, and again
    without unusable ones.
    """
    _check_settings(recipe)
    splits = _undecoded(recipe)
    check(splits)
    if recipe.dataset != "glyphs":
        splits = readable_splits(splits, recipe.corrupt_images)
        check(splits)
    if recipe.cache_features:
        from training.recipes.features import with_features

        return with_features(recipe, splits)
    return splits


def readable_splits(
    splits: RetrievalSplits, on_corrupt: str = "raise"
) -> RetrievalSplits:
    """Decodes every file once: raises for unusable ones, or leaves them out."""
    parts: dict[str, Any] = splits.sides()
    parts = {side: part for side, part in parts.items() if part.paths}
    # Queries and gallery are test images too.
    paths = list(dict.fromkeys(p for one in parts.values() for p in one.paths))
    passed = cache_folder() / "readable" / files_digest(paths)
    if not paths or passed.exists():
        return splits
    skipped = unreadable(paths)
    if skipped and (on_corrupt == "raise" or len(skipped) == len(paths)):
        raise ValueError(
            "All images must be readable. Received: "
            f"{unreadable_text(skipped, len(paths))}\nRemove them, or skip "
            "them with --corrupt-images skip."
        )
    if not skipped:
        passed.parent.mkdir(parents=True, exist_ok=True)
        passed.touch()
        return splits
    warnings.warn(
        f"{len(skipped)} unusable images of {splits.name} are left out, "
        f"first: {next(iter(skipped))}.",
        stacklevel=3,
    )
    for side, part in parts.items():
        kept = [i for i, p in enumerate(part.paths) if p not in skipped]
        if not kept:
            raise ValueError(
                f"{splits.name} must have a readable {side} image. Received: "
                f"{len(part)} unusable ones."
            )
        parts[side] = part.subset(kept)
    return replace(splits, **parts)


def needed_sources(recipe: Recipe) -> tuple[str, ...]:
    """Returns which of `data_dir` and `backbone_weights` must be given."""
    if recipe.dataset == "glyphs":
        return ()
    is_frozen = recipe.frozen != "none" and not recipe.hub_preset
    return ("data_dir", "backbone_weights") if is_frozen else ("data_dir",)


def check_sources(recipe: Recipe) -> None:
    """Checks files, loss and pooling before any image is read.

    Downloads ImageNet's weights, or pretrains on characters, if necessary.
    """
    _check_settings(recipe)
    from training.recipes import learner

    learner.build_loss(recipe)
    learner.build_regularizer(recipe)
    learner.build_pooling(recipe)
    if recipe.hub_preset:
        import keras_hub  # noqa: F401
    weights, backbone = recipe.backbone_weights, recipe.backbone
    if weights == "characters" and backbone.startswith("glyph-cnn"):
        from training.recipes.glyph_network import character_weights

        weights = str(character_weights(backbone))
    files = {"data_dir": recipe.data_dir, "decisions": recipe.decisions}
    files["backbone_weights"] = None if weights == "imagenet" else weights
    for name, path in files.items():
        if path is not None and not Path(path).expanduser().exists():
            raise FileNotFoundError(
                f"`{name}` must exist. Received: {name}={path}."
            )
    if weights == "imagenet":
        learner.fetch_imagenet_weights(recipe)


def check_classes(recipe: Recipe, splits: RetrievalSplits) -> None:
    """Raises unless the training classes fill a batch; warns of one class."""
    if splits.train.num_classes < recipe.classes_per_batch:
        raise ValueError(
            "`classes_per_batch` must be at most the number of training "
            f"classes. Received: classes_per_batch={recipe.classes_per_batch} "
            f"for {splits.train.num_classes} training classes of "
            f"{splits.name}."
        )
    if splits.validation is not None and splits.validation.num_classes == 1:
        warnings.warn(
            "Validation has one class, in which each neighbor is right: it "
            "cannot choose a step or a setting. Take more classes.",
            stacklevel=2,
        )


def _with_validation(recipe, splits, classes):
    if classes is not None:
        return splits.of_run(classes)
    if splits.validation is not None:
        return splits
    return splits.with_validation(VALIDATION_FOLDS, recipe.validation_fold)


def _undecoded(recipe):
    """Splits whose files are known, and not yet decoded."""
    arguments = dict(recipe.data_arguments)
    if recipe.dataset == "glyphs":
        from training.datasets import glyphs

        return glyphs.load(**arguments)
    if recipe.dataset == "csv":
        arguments["on_missing"] = recipe.corrupt_images
    if recipe.decisions is not None:
        arguments["decisions"] = recipe.decisions
    return READERS[recipe.dataset](recipe.data_dir, **arguments)


def _check_settings(recipe):
    for name in needed_sources(recipe):
        if getattr(recipe, name) is None:
            raise ValueError(
                f"`{name}` must name {SOURCES[name]}. Received: {name}=None."
            )
    is_drawn = recipe.dataset in ("glyphs", "collage")
    if recipe.crop_size is None and not is_drawn:
        raise ValueError(
            f"`crop_size` must be given for dataset={recipe.dataset}, whose "
            "images are files of any size. Received: crop_size=None."
        )
