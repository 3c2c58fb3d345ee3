"""Short trainings start, and are regularised, as their recipes say."""

from dataclasses import replace

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("experiments train on TensorFlow", allow_module_level=True)

from keras_gsp.models.encoder import features_before
from keras_gsp.ops.normalization import unit_ball
from training.datasets import glyphs
from training.datasets.image_set import ImageSet
from training.experiments import solver_rounds
from training.experiments.short_training import (
    trained_encoder,
    untrained_encoder,
)
from training.recipes.glyphs import ZSR

SMALL = {
    "embedding_size": 8,
    "num_prototypes": 4,
    "classes_per_batch": 4,
    "samples_per_class": 2,
    "steps": 2,
    "steps_per_evaluation": 2,
}


@pytest.fixture(scope="module")
def images():
    return glyphs.load(
        train_classes=4,
        train_samples=8,
        validation_classes=1,
        test_classes=1,
        test_samples=2,
    ).train


def prototypes_of(encoder):
    return np.array(encoder.get_layer("pooling").prototypes)


def test_training_starts_from_the_prototypes_of_the_recipe(images):
    recipe = replace(ZSR, **SMALL)
    random, data = (
        untrained_encoder(replace(recipe, prototype_start=start), images)
        for start in ("random", "data")
    )
    assert not np.allclose(prototypes_of(random), prototypes_of(data))
    # Batch normalisation has seen the images too.
    moved = [
        not np.allclose(one, other)
        for one, other in zip(
            random.non_trainable_variables,
            keras.models.clone_model(random).non_trainable_variables,
            strict=True,
        )
    ]
    assert all(moved)
    still = replace(recipe, learning_rate=1e-12)
    np.testing.assert_allclose(
        prototypes_of(trained_encoder(still, images)),
        prototypes_of(data),
        atol=1e-6,
    )


def test_every_solver_starts_from_features_of_the_images():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(16, 3, 3, 8)).astype("float16")
    labels = np.repeat(np.arange(4), 4)
    data = ImageSet(labels, tuple("abcd"), images=features)
    settings = solver_rounds.Settings().small()
    makers = solver_rounds.contenders(settings)
    del makers[solver_rounds.AVERAGE, 0]
    for make in makers.values():
        encoder, _ = solver_rounds.trained(settings, data, make, seed=0)
        seen = features_before(encoder, encoder.get_layer("pooling"))(features)
        seen = np.reshape(unit_ball(seen), (-1, seen.shape[-1]))
        started = prototypes_of(encoder)
        distances = np.linalg.norm(started[:, None] - seen, axis=-1)
        # Two steps move a weight by no more than twice the learning rate.
        assert distances.min(axis=1).max() < 0.05
