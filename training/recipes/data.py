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
    splits = read_recipe(recipe)
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


def read_recipe(recipe: Recipe) -> RetrievalSplits:
    """The data set of a recipe as it is, perhaps without validation."""
    if recipe.dataset == "glyphs":
        from training.datasets import glyphs

        return glyphs.load()
    if recipe.data_dir is None and recipe.source == "disk":
        raise ValueError(
            f"`data_dir` must name the folder of {recipe.dataset}. "
            "Received: data_dir=None."
        )
    if recipe.frozen != "none" and recipe.backbone_weights is None:
        raise ValueError(
            "`backbone_weights` must name a file (or imagenet) with "
            f"frozen={recipe.frozen}: what is frozen would stay random. "
            "Received: backbone_weights=None."
        )
    from training.datasets.reading import read_splits

    own = {}
    if recipe.train_classes is not None:
        own["num_train_classes"] = recipe.train_classes
    if recipe.images_per_class is not None:
        own["images_per_class"] = recipe.images_per_class
    splits = read_splits(
        recipe.dataset,
        recipe.data_dir,
        source=recipe.source,
        on_corrupt=recipe.corrupt_images,
        **own,
    )
    if recipe.cache_features:
        from training.recipes.features import with_features

        return with_features(recipe, splits)
    return splits
