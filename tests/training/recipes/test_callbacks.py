"""What watches a run says what its method does."""

from dataclasses import replace

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("training runs on TensorFlow", allow_module_level=True)

from training.recipes.callbacks import LearntRatio, MemoryFill
from training.recipes.glyphs import RECIPES
from training.recipes.learner import build_learner


def test_the_memory_counts_once_it_is_warm():
    recipe = replace(
        RECIPES["glyphs-xbm"],
        embedding_size=8,
        classes_per_batch=4,
        samples_per_class=2,
        memory_capacity=32,
        memory_warmup_steps=2,
    )
    learner = build_learner(recipe, num_classes=4, image_shape=(16, 16, 3))
    callback = MemoryFill()
    callback.set_model(learner)
    images = np.zeros((8, 16, 16, 3), "uint8")
    labels = np.repeat(np.arange(4), 2)
    found = []
    for _ in range(3):
        learner.train_on_batch(images, labels)
        logs = {}
        callback.on_epoch_end(0, logs)
        found.append(logs["memory_fill"])
    assert found == [0.0, 0.0, 0.75]


def test_a_ratio_that_is_learnt_is_logged_as_it_moves():
    recipe = replace(
        RECIPES["glyphs-gsp"],
        pooling="gsp-learnt",
        embedding_size=8,
        num_prototypes=8,
        transport_ratio=0.3,
        classes_per_batch=4,
        samples_per_class=2,
        learning_rate=0.1,
    )
    learner = build_learner(recipe, num_classes=4, image_shape=(16, 16, 3))
    callback = LearntRatio()
    callback.set_model(learner)
    images = np.random.default_rng(0).integers(0, 255, (8, 16, 16, 3))
    found = []
    for _ in range(2):
        logs = {}
        callback.on_epoch_end(0, logs)
        found.append(logs["transport_ratio"])
        learner.train_on_batch(images.astype("uint8"), np.repeat(range(4), 2))
    assert found[0] == pytest.approx(0.3, abs=1e-6)
    assert abs(found[1] - 0.3) > 1e-3
