"""The data set of a recipe."""

from training.datasets.image_set import RetrievalSplits
from training.recipes.recipe import Recipe


def load_splits(recipe: Recipe) -> RetrievalSplits:
    """Reads or renders the data set that a recipe names.

    Returns:
        Splits that always have a validation side: where the data set brings
        none, it is the recipe's fold of the training classes.

    Raises:
        ValueError: `data_dir` is needed and missing, or the data set has
            fewer training classes than a batch takes.
        FileNotFoundError: the data set is not there.
    """
    splits = _read(recipe)
    if splits.validation is None:
        splits = splits.with_validation(
            recipe.validation_folds, recipe.validation_fold
        )
    if splits.train.num_classes < recipe.classes_per_batch:
        raise ValueError(
            "`classes_per_batch` must be at most the number of training "
            f"classes. Received: classes_per_batch={recipe.classes_per_batch} "
            f"for {splits.train.num_classes} training classes of "
            f"{splits.name}."
        )
    return splits


def _read(recipe):
    if recipe.dataset == "glyphs":
        from training.datasets import glyphs

        return glyphs.load()
    if recipe.data_dir is None:
        raise ValueError(
            f"`data_dir` must name the folder of {recipe.dataset}. "
            "Received: data_dir=None."
        )
    return _from_disk(recipe)


def _from_disk(recipe):
    # Each import brings its own reader's libraries, hence here.
    match recipe.dataset:
        case "cub":
            from training.datasets.cub import cub as read
        case "cars":
            from training.datasets.cars196 import cars196 as read
        case "sop":
            from training.datasets.stanford_online_products import (
                stanford_online_products as read,
            )
        case "inshop":
            from training.datasets.in_shop import in_shop as read
        case "cifar10":
            from training.datasets.cifar import cifar10 as read
        case "cifar100":
            from training.datasets.cifar import cifar100 as read
        case "mnist":
            from training.datasets.mnist import mnist as read
        case "omniglot":
            from training.datasets.omniglot import omniglot as read
        case "collage":
            from training.datasets.collage import collage_splits as read
        case "folder":
            from training.datasets.image_folder import (
                image_folder_splits as read,
            )
        case "csv":
            from training.datasets.csv_list import csv_splits as read
    return read(recipe.data_dir)
