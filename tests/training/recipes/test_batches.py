"""Batches of a recipe: whole or cropped images, and parts of a batch."""

from itertools import islice

import numpy as np

from keras_gsp._labeled_batches import batches_of
from keras_gsp.data import ImageSet
from training.recipes import batches
from training.recipes.recipe import named

RECIPE = named("glyphs", ccp="on").with_(
    classes_per_batch=2, samples_per_class=2, ccp_pool_size=4, seed=3
)


def image_set():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (11, 6, 6, 3)).astype("uint8")
    labels = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 0])
    return ImageSet(labels, tuple("abc"), images=images)


def test_whole_images_are_a_function_of_the_step_in_any_process():
    images = image_set()
    whole = batches.training_batches(RECIPE, images)
    part = batches.training_batches(
        RECIPE, images, first_step=3, positions=np.array([0, 2])
    )
    for one, other in zip(islice(whole, 3, 7), islice(part, 4), strict=True):
        for all_rows, rows in zip(one, other, strict=True):
            np.testing.assert_array_equal(all_rows[[0, 2]], rows)
    found = list(batches.evaluation_batches(RECIPE, images))
    pixels, labels = map(np.concatenate, zip(*found, strict=True))
    np.testing.assert_array_equal(pixels, images.images)
    assert labels.tolist() == images.labels.tolist()
    (first, _) = batches.pool_of(RECIPE, images)(np.array([2, 0]), 1)
    np.testing.assert_array_equal(first[1], 2)


def test_pools_are_cropped_like_training_images():
    cropped = RECIPE.with_(crop_size=4, resize=5, augmentation="mlrc")
    pool = batches.pool_of(cropped, image_set())
    found = list(batches_of(pool(np.array([2, 1]), 1)))
    assert [pixels.shape for pixels, _ in found] == [(4, 4, 4, 3)] * 2
    labels = [np.asarray(labels).tolist() for _, labels in found]
    assert labels == [[2] * 4, [1] * 4]
