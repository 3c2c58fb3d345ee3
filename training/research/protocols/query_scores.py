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
    )
    single = found.pop("per_query")
    rates = {
        name: value
        for name, value in found.items()
        if not name.startswith("num_")
    }
    # The package brings Keras along: not for an error or --help.
    from keras_gsp.storage.whole import whole_file

    with whole_file(folder / FILE) as aside, aside.open("wb") as file:
        np.savez(
            file,
            labels=labels,
            embedding_size=queries.shape[1],
            rate_names=np.array(list(rates)),
            rates=np.array(list(rates.values())),
            **{name: single[name] for name in MEASURES},
        )


def load_query_scores(folder: Path) -> dict[str, np.ndarray]:
    """Reads the single scores that `save_query_scores` kept.

    Returns:
        Dict of `labels` and one array for each of `MEASURES`, all (queries,);
        NaN for a query without a positive.
    """
    with np.load(folder / FILE) as found:
        return {name: found[name] for name in ("labels", *MEASURES)}


def load_rates(folder: Path) -> tuple[dict[str, float], int]:
    """Reads the means that `save_query_scores` kept.

    Returns:
        The rates of `gsp.metrics.retrieval_scores`, without its counts, and
        the embeddings' size.
    """
    with np.load(folder / FILE) as found:
        names, rates = found["rate_names"].tolist(), found["rates"].tolist()
        return dict(zip(names, rates, strict=True)), int(
            found["embedding_size"]
        )
