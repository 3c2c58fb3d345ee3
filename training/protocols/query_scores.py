"""Scores of every single query: what paired differences are made of."""

from pathlib import Path
from typing import Any

import numpy as np

from training.runs.kept_embeddings import load_test_embeddings

FILE = "query_scores.npz"
MEASURES = ("map_at_r", "precision_at_r", "precision_at_1")


def save_query_scores(folder: Path, splits: Any) -> None:
    """Scores the test embeddings kept in a run's folder, query by query.

    Args:
        folder: The run's folder.
        splits: The labels.
    """
    import keras_gsp as gsp

    embeddings = load_test_embeddings(folder)
    gallery = {}
    if splits.query is None:
        queries, labels = embeddings["test"], splits.test.labels
    else:
        queries, labels = embeddings["query"], splits.query.labels
        gallery = {
            "gallery_embeddings": embeddings["gallery"],
            "gallery_labels": splits.gallery.labels,
        }
    found = gsp.metrics.retrieval_scores(
        queries, labels, per_query=True, **gallery
    )["per_query"]
    scores = {name: found[name] for name in MEASURES}
    # The package brings Keras along: not for an error or --help.
    from keras_gsp.storage.whole import whole_file

    with whole_file(folder / FILE) as aside, aside.open("wb") as file:
        np.savez(file, labels=labels, **scores)


def load_query_scores(folder: Path) -> dict[str, np.ndarray]:
    """Reads what `save_query_scores` kept.

    Returns:
        Dict of `labels` and one array for each of `MEASURES`, all (queries,);
        NaN for a query without a positive.
    """
    with np.load(folder / FILE) as found:
        return dict(found)
