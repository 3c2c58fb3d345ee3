"""Training and evaluation batches of a recipe."""

from dataclasses import replace
from typing import Any

import keras
import numpy as np

import keras_gsp as gsp
from keras_gsp._labeled_batches import batches_of
from keras_gsp.data import ImageSet
from keras_gsp.data.host_batches import HostBatches
from keras_gsp.data.preprocessing import agreed
from keras_gsp.data.untuned import has_tensorflow, tf, untuned
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
    indices = gsp.data.class_balanced_batches(
        images.labels,
        classes_per_batch=recipe.classes_per_batch,
        samples_per_class=recipe.samples_per_class,
        seed=recipe.seed,
        first_step=first_step,
    )
    start = {"first_step": first_step, "positions": positions}
    return _augmented(recipe, images, indices, seed=recipe.seed, **start)


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
        rows = [
            np.resize(generator.permutation(rows_of_class[label]), size)
            for label in classes
        ]
        seed = int(generator.integers(2**31))
        indices = _index_batches(np.stack(rows))
        return _augmented(recipe, images, indices, seed=seed)

    return pool


def evaluation_batches(
    recipe: Recipe,
    images: ImageSet,
    *,
    encoder: Any = None,
    batch_size: int = 100,
) -> Any:
    """Returns all images once, cropped as recipe and trained encoder say."""
    preprocessing = expected_preprocessing(recipe, encoder)
    if _is_whole(recipe, images):
        ends = range(batch_size, len(images), batch_size)
        rows = np.split(np.arange(len(images)), ends)
        return _whole_images(images, _index_batches(rows))
    return gsp.data.evaluation_batches(
        images.paths if images.images is None else images.images,
        images.labels,
        preprocessing=preprocessing,
        batch_size=batch_size,
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
    own = gsp.data.preprocessing_of(encoder)
    return agreed({"encoder": own, "recipe": preprocessing_of(recipe)})


def with_pixels(recipe: Recipe, splits: RetrievalSplits) -> RetrievalSplits:
    """Loads files that are never augmented, cropped, if they fit in memory."""
    count = sum(len(images) for images in splits.sides().values())
    size = 3 * count * (recipe.crop_size or 0) ** 2
    is_fixed = recipe.augmentation == "none" and size <= MOST_PIXELS
    if splits.train.images is not None or not is_fixed:
        return splits

    def loaded(images):
        batches = evaluation_batches(recipe, images)
        pixels = np.concatenate([pixels for pixels, _ in batches_of(batches)])
        return replace(images, images=pixels, paths=None)

    return splits.mapped(loaded)


def _augmented(recipe, images, indices, *, positions=None, **settings):
    """Returns the batches of `indices`, cropped and flipped at random."""
    if _is_whole(recipe, images):
        return _whole_images(images, indices, positions)
    return gsp.data.augmented_batches(
        images.paths if images.images is None else images.images,
        images.labels,
        indices,
        size=recipe.crop_size,
        resize=recipe.shorter_side,
        crop=CROPS[recipe.augmentation],
        flip=recipe.augmentation != "none",
        positions=positions,
        **settings,
    )


def _is_whole(recipe, images):
    if preprocessing_of(recipe) is None:
        return True
    # Files that `with_pixels` has loaded.
    is_fixed = recipe.augmentation == "none" and images.images is not None
    return is_fixed and recipe.dataset not in DATA_ARGUMENTS


def _whole_images(images, indices, positions=None):
    if images.images is None:
        raise ValueError(
            "`crop_size` must be given for images on disk. "
            "Received: crop_size=None."
        )
    if not has_tensorflow():
        places = slice(None) if positions is None else positions
        given = indices, images.images, images.labels, None
        return HostBatches(*given, positions=places)
    if positions is not None:
        indices = indices.map(lambda rows: tf.gather(rows, positions))
    pixels = tf.constant(images.images)
    labels = tf.constant(images.labels)
    batches = indices.map(
        lambda rows: (tf.gather(pixels, rows), tf.gather(labels, rows)),
        num_parallel_calls=1,
    )
    return untuned(batches.prefetch(4))


def _index_batches(rows):
    """Returns the given rows of each batch; an array has one length."""
    if not has_tensorflow():
        return _Rows(rows)
    if not isinstance(rows, np.ndarray):
        rows = tf.ragged.constant(rows, "int64", 1)
    return tf.data.Dataset.from_tensor_slices(rows)


class _Rows(keras.utils.PyDataset):
    """Positions of each batch, for a host without TensorFlow."""

    def __init__(self, rows):
        super().__init__()
        self.rows = rows

    @property
    def num_batches(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]
