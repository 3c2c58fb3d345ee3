"""A training of a fixed number of steps, for comparing methods."""

from typing import Any

import numpy as np

import keras_gsp as gsp
from training.datasets.image_set import ImageSet
from training.recipes.batches import training_batches
from training.recipes.learner import build_learner, start_from_data
from training.recipes.recipe import Recipe
from training.research.experiments.regularizer_share import noted

_BLOCK = 200


def trained(recipe: Recipe, images: ImageSet) -> tuple[Any, dict[str, Any]]:
    """Trains a recipe for `recipe.steps` steps, without validation.

    No weights are chosen by a score: methods are compared at equal cost, and
    what is scored afterwards has had no say.

    Args:
        recipe: The settings; its seed sets weights and batches.
        images: What to learn from, in memory.

    Returns:
        The encoder, and what is noted of the regularizer's share.
    """
    learner = _learner(recipe, images)
    history = learner.fit(
        training_batches(recipe, images),
        epochs=1,
        steps_per_epoch=recipe.steps,
        shuffle=False,
        verbose=0,
    )
    return learner.encoder, noted(learner, history.history)


def trained_encoder(recipe: Recipe, images: ImageSet) -> Any:
    """The encoder alone that `trained` returns."""
    return trained(recipe, images)[0]


def untrained_encoder(recipe: Recipe, images: ImageSet) -> Any:
    """The encoder that `trained` starts from."""
    return _learner(recipe, images).encoder


def encoded(encoder: Any, images: ImageSet) -> dict:
    """Embeddings and, where there are any, histograms of all images.

    Returns:
        `"embedding"` and perhaps `"histogram"`, (num_images, size) each.
    """
    parts = []
    for start in range(0, len(images), _BLOCK):
        block = images.images[start : start + _BLOCK]
        outputs = encoder(block, training=False)
        if not isinstance(outputs, dict):
            outputs = {"embedding": outputs}
        parts.append({key: np.asarray(v) for key, v in outputs.items()})
    return {
        key: np.concatenate([part[key] for part in parts]) for key in parts[0]
    }


def retrieval(encoder: Any, images: ImageSet) -> dict:
    """MAP@R and P@1 of an encoder on a set of images."""
    found = encoded(encoder, images)["embedding"]
    scores = gsp.metrics.retrieval_scores(found, images.labels)
    return {name: scores[name] for name in ("map_at_r", "precision_at_1")}


def balanced_batch(images: ImageSet, size: int) -> dict:
    """Classes and samples of a batch, as many classes as there may be.

    Args:
        images: What to learn from.
        size: Images in the batch, about.

    Returns:
        `classes_per_batch` and `samples_per_class`, arguments of a `Recipe`.
    """
    classes = int(np.clip(images.num_classes, 1, size // 4))
    return {
        "classes_per_batch": classes,
        "samples_per_class": max(2, size // classes),
    }


def _learner(recipe, images):
    learner = build_learner(
        recipe,
        num_classes=images.num_classes,
        image_shape=images.images.shape[1:],
    )
    start_from_data(recipe, learner, training_batches(recipe, images))
    return learner
