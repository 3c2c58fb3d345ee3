"""Callbacks log what a method does."""

import numpy as np
import pytest

from training.recipes.learner import build_learner
from training.recipes.named import named
from training.runs.callbacks import LearnedRatio

IMAGES = np.random.default_rng(0).integers(0, 255, (8, 16, 16, 3), "uint8")
LABELS = np.repeat(np.arange(4), 2)


def learner_of(**settings):
    batches = {"classes_per_batch": 4, "samples_per_class": 2}
    recipe = named("glyphs").with_(embedding_size=8, **batches, **settings)
    return build_learner(recipe, num_classes=4, image_shape=(16, 16, 3))


def logged(callback, learner):
    """What a callback adds to an evaluation's logs."""
    callback.set_model(learner)
    logs = {}
    callback.on_epoch_end(0, logs)
    (value,) = logs.values()
    return value


def test_a_ratio_that_is_learned_is_logged_as_it_moves():
    learner = learner_of(
        pooling="gsp-learned",
        num_prototypes=8,
        transport_ratio=0.3,
        learning_rate=0.1,
    )
    assert logged(LearnedRatio(), learner) == pytest.approx(0.3, abs=1e-6)
    learner.train_on_batch(IMAGES, LABELS)
    assert abs(logged(LearnedRatio(), learner) - 0.3) > 1e-3
