"""Training and evaluation batches of a recipe."""

from dataclasses import replace
from typing import Any

import numpy as np

import keras_gsp as gsp
from keras_gsp._labeled_batches import batches_of
from keras_gsp.data import ImageSet
from keras_gsp.data.preprocessing import agreed
from keras_gsp.data.preprocessing import preprocessing_of as expected_by
from training.datasets.image_set import RetrievalSplits
from training.recipes.recipe import DATA_ARGUMENTS, Recipe

# Bytes of images that are kept in memory.
MOST_PIXELS = 2**30
CROPS = {"none": None, "mlrc": "side", "mlrc-area": "area"}


def training_batches(
    recipe: Recipe,
    images: ImageSet,
    *,
    first_step: int = 0,
    positions: np.ndarray | None = None,
) -> Any:
    """Returns endless class-balanced batches, a function of (seed, step).

    `positions` are the rows of each batch that one of several processes reads.
    """
    sampler = gsp.data.ClassBalancedSampler(
        images.labels,
        classes_per_batch=recipe.classes_per_batch,
        samples_per_class=recipe.samples_per_class,
        seed=recipe.seed,
    )
    batches = _batches(
        recipe,
        images,
        preprocessing_of(recipe),
        sampler=sampler,
        augment=CROPS[recipe.augmentation],
    )
    return batches.from_step(first_step, positions)


def pool_of(recipe: Recipe, images: ImageSet) -> Any:
    """Returns the pool of samples for chance constrained programming.

    It maps classes and the problem to a data set with a batch for each class,
    of `ccp_pool_size` images; a smaller class repeats images.
    """
    size = recipe.ccp_pool_size
    rows_of_class = np.split(
        np.argsort(images.labels, kind="stable"),
        np.cumsum(images.class_sizes)[:-1],
    )

    def pool(classes, problem):
        generator = np.random.default_rng((recipe.seed, int(problem)))
        rows = _Rows(
            np.resize(generator.permutation(rows_of_class[label]), size)
            for label in classes
        )
        rows.seed = int(generator.integers(2**31))
        return _batches(
            recipe,
            images,
            preprocessing_of(recipe),
            sampler=rows,
            augment=CROPS[recipe.augmentation],
        )

    return pool


def evaluation_batches(
    recipe: Recipe, images: ImageSet, *, encoder: Any = None
) -> Any:
    """Returns all images once, cropped as recipe and trained encoder say."""
    preprocessing = expected_preprocessing(recipe, encoder)
    return _batches(recipe, images, preprocessing, batch_size=32)


def cropped_batches(recipe: Recipe, images: ImageSet, seed: int) -> Any:
    """Returns all images once, in order, each a random crop."""
    ends = range(32, len(images), 32)
    rows = _Rows(np.split(np.arange(len(images)), ends))
    rows.seed = seed
    augment = CROPS[recipe.augmentation]
    preprocessing = preprocessing_of(recipe)
    return _batches(
        recipe, images, preprocessing, sampler=rows, augment=augment
    )


def image_shape(recipe: Recipe, images: ImageSet) -> tuple[Any, Any, Any]:
    """Returns (height, width, 3) of the network's inputs."""
    if _is_whole(recipe, images):
        return images.images.shape[1:]
    return recipe.crop_size, recipe.crop_size, 3


def preprocessing_of(recipe: Recipe) -> gsp.data.Preprocessing | None:
    """Returns how images are cut for evaluation; None: they are kept whole."""
    if recipe.crop_size is None or recipe.cache_features:
        return None
    return gsp.data.Preprocessing(recipe.crop_size, recipe.shorter_side)


def expected_preprocessing(
    recipe: Recipe, encoder: Any
) -> gsp.data.Preprocessing | None:
    """Returns how images are cut; `ValueError` if the encoder contradicts."""
    own = expected_by(encoder)
    return agreed({"encoder": own, "recipe": preprocessing_of(recipe)})


def with_pixels(recipe: Recipe, splits: RetrievalSplits) -> RetrievalSplits:
    """Loads files that are never augmented, cropped, if they fit in memory."""
    if splits.train.images is not None:
        return splits
    sides: dict[str, Any] = splits.sides()
    if recipe.augmentation != "none":
        del sides["train"]
    count = sum(len(images) for images in sides.values())
    if 3 * count * (recipe.crop_size or 0) ** 2 > MOST_PIXELS:
        return splits
    for side, images in sides.items():
        batches = batches_of(evaluation_batches(recipe, images))
        pixels = np.concatenate([pixels for pixels, _ in batches])
        sides[side] = replace(images, images=pixels, paths=None)
    return replace(splits, **sides)


class _Rows(list):
    """The positions of each batch, and the seed of their crops."""

    seed: int


def _batches(recipe, images, preprocessing, augment=None, **options):
    if _is_whole(recipe, images):
        preprocessing = augment = None
    return gsp.data.image_batches(
        images.paths if images.images is None else images.images,
        images.labels,
        preprocessing=preprocessing,
        augment=augment,
        **options,
    )


def _is_whole(recipe, images):
    if preprocessing_of(recipe) is None:
        return True
    # Files that `with_pixels` has loaded.
    is_fixed = images.images is not None
    return is_fixed and recipe.dataset not in DATA_ARGUMENTS
