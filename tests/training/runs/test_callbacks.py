"""Callbacks log what a method does."""

import numpy as np
import pytest

from training.recipes.learner import build_learner
from training.recipes.named import named
from training.runs.callbacks import LearnedRatio


def test_a_ratio_that_is_learned_is_logged_as_it_moves():
    recipe = named("glyphs", pooling="gsp-learned").with_(
        embedding_size=8,
        num_prototypes=8,
        transport_ratio=0.3,
        learning_rate=0.1,
    )
    learner = build_learner(recipe, num_classes=4, image_shape=(16, 16, 3))
    images = np.random.default_rng(0).integers(0, 255, (8, 16, 16, 3), "uint8")
    callback, logs = LearnedRatio(), {}
    callback.set_model(learner)
    callback.on_epoch_end(0, logs)
    assert logs == {"transport_ratio": pytest.approx(0.3, abs=1e-6)}
    learner.train_on_batch(images, np.repeat(np.arange(4), 2))
    callback.on_epoch_end(1, logs)
    assert abs(logs["transport_ratio"] - 0.3) > 1e-3
