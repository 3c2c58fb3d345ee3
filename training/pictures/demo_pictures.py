"""The demo's three pictures."""

from pathlib import Path

import numpy as np

from training.datasets.image_set import RetrievalSplits
from training.pictures.learning_curves import draw_learning_curves
from training.pictures.pooling_weights import (
    draw_pooling_weights,
    pooling_weights,
)
from training.pictures.retrieval_grid import draw_retrieval_grid
from training.runs.scoring import embed, load_encoder

NUM_IMAGES = 8
NUM_NEIGHBORS = 8


def draw_pictures(
    directories: dict, splits: RetrievalSplits, folder: Path
) -> None:
    """Draws learning curves, pooling weights and neighbors.

    Args:
        directories: (method, seed) -> finished `RunDirectory`.
        splits: The `glyphs` splits; images are drawn from unseen letters.
        folder: Where the PNG files go.
    """
    histories: dict[str, list] = {}
    for (method, _), directory in directories.items():
        histories.setdefault(method, []).append(directory.read_history())
    draw_learning_curves(folder / "learning_curves.png", histories)
    directory = directories["GSP", 0]
    encoder, recipe = load_encoder(directory), directory.read_recipe()
    _draw_weights(folder / "pooling_weights.png", encoder, splits.test)
    _draw_neighbors(folder / "retrieval_grid.png", encoder, recipe, splits.test)


def _draw_weights(path, encoder, images):
    chosen = _one_of_each_class(images, NUM_IMAGES)
    pixels = images.images[chosen]
    # Names begin with the letter itself.
    titles = [images.class_names[label][0] for label in images.labels[chosen]]
    weights = pooling_weights(encoder, pixels)
    draw_pooling_weights(path, pixels, weights, titles)


def _draw_neighbors(path, encoder, recipe, images):
    import keras_gsp as gsp

    index = gsp.retrieval.ExactIndex(
        embed(encoder, recipe, images), images.labels
    )
    chosen = _one_of_each_class(images, NUM_IMAGES)
    found = index.search(
        index.gallery.embeddings[chosen], NUM_NEIGHBORS, exclude_ids=chosen
    )
    draw_retrieval_grid(
        path,
        images.images[chosen],
        images.images[found.ids],
        found.labels == images.labels[chosen, None],
    )


def _one_of_each_class(images, count):
    """Positions of the first image of the first `count` classes."""
    _, first = np.unique(images.labels, return_index=True)
    return first[:count]
