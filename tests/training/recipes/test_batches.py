"""Batches of a recipe are the same with and without TensorFlow."""

import sys
from itertools import islice

import keras
import numpy as np

from keras_gsp._labeled_batches import batches_of
from keras_gsp.data import ImageSet
from training.recipes import batches
from training.recipes.named import named

RECIPE = named("glyphs", ccp="on").with_(
    classes_per_batch=2, samples_per_class=2, ccp_pool_size=4, seed=3
)


def image_set():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (11, 6, 6, 3)).astype("uint8")
    labels = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 0])
    return ImageSet(labels, tuple("abc"), images=images)


def every_kind(images):
    yield islice(batches_of(batches.training_batches(RECIPE, images)), 7)
    part = {"first_step": 3, "positions": np.array([0, 2])}
    part = batches.training_batches(RECIPE, images, **part)
    yield islice(batches_of(part), 4)
    yield batches_of(batches.evaluation_batches(RECIPE, images, batch_size=4))
    pool = batches.pool_of(RECIPE, images)
    yield batches_of(pool(np.array([2, 0]), 1))


def test_whole_images_are_batched_without_tensorflow(monkeypatch):
    images = image_set()
    with_it = [list(part) for part in every_kind(images)]
    # The package has the function under the module's name.
    balanced = sys.modules["keras_gsp.data.class_balanced_batches"]
    for module in (batches, balanced):
        monkeypatch.setattr(module, "has_tensorflow", lambda: False)
    found = batches.training_batches(RECIPE, images)
    assert isinstance(found, keras.utils.PyDataset)
    without = [list(part) for part in every_kind(images)]
    assert [len(part) for part in without] == [7, 4, 3, 2]
    for ours, theirs in zip(without, with_it, strict=True):
        for pair in zip(ours, theirs, strict=True):
            for one, other in zip(*pair, strict=True):
                np.testing.assert_array_equal(one, other)


def test_pools_are_cropped_like_training_images():
    cropped = RECIPE.with_(crop_size=4, resize=5, augmentation="mlrc")
    pool = batches.pool_of(cropped, image_set())
    found = list(batches_of(pool(np.array([2, 1]), 1)))
    assert [pixels.shape for pixels, _ in found] == [(4, 4, 4, 3)] * 2
    labels = [np.asarray(labels).tolist() for _, labels in found]
    assert labels == [[2] * 4, [1] * 4]
