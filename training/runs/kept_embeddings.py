"""Embeddings of the test side: kept by every member, scored together."""

from pathlib import Path
from typing import Any

import numpy as np

from training.datasets.image_set import RetrievalSplits
from training.recipes.recipe import Recipe
from training.runs.scoring import embed

FILE = "test_embeddings.npz"


def save_test_embeddings(
    folder: Path, encoder: Any, recipe: Recipe, splits: RetrievalSplits
) -> None:
    """Embeds what is scored and keeps it in a run's folder.

    Args:
        folder: The run's folder.
        encoder: Keras model to embeddings.
        recipe: Says how images are cut.
        splits: Queries and gallery are kept where there are any, else the
            test images.
    """
    found = {
        side: embed(encoder, recipe, getattr(splits, side))
        for side in _sides(splits)
    }
    # The package brings Keras along: not for an error or --help.
    from keras_gsp.embeddings.processes import from_first_process

    from_first_process(lambda: _write(folder / FILE, found))


def _write(path, arrays):
    from keras_gsp.storage.whole import whole_file

    # Through a handle, or NumPy would add its own ending to the name.
    with whole_file(path) as aside, aside.open("wb") as file:
        np.savez(file, **arrays)


def load_test_embeddings(folder: Path) -> dict[str, np.ndarray]:
    """Reads what `save_test_embeddings` kept."""
    with np.load(folder / FILE) as found:
        return dict(found)


def score_test_embeddings(
    embeddings: Any, splits: RetrievalSplits
) -> dict[str, float]:
    """Scores embeddings of the test side.

    Args:
        embeddings: Side -> (num_images, embedding_size).
        splits: The labels.

    Returns:
        The rates of `gsp.metrics.retrieval_scores`, without its counts.
    """
    import keras_gsp as gsp

    searching, *searched = _sides(splits)
    gallery = {}
    if searched:
        gallery = {
            "gallery_embeddings": embeddings["gallery"],
            "gallery_labels": splits.gallery.labels,
        }
    scores = gsp.metrics.retrieval_scores(
        embeddings[searching], getattr(splits, searching).labels, **gallery
    )
    return {
        name: float(value)
        for name, value in scores.items()
        if not name.startswith("num_")
    }


def _sides(splits):
    return ["test"] if splits.query is None else ["query", "gallery"]
