"""What a run's encoder finds: embeddings, neighbors, scores by query."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from training.reports.scored_images import ScoredImages

NEIGHBORS = 10
"""Neighbors that are kept of each query."""


@dataclass(frozen=True, eq=False)
class Searched:
    """The search of one run.

    Args:
        images: What is searched and searches.
        encoder: The run's encoder.
        embeddings: (images, size).
        neighbors: (queries, k), positions of the nearest images.
        distances: (queries, k), Euclidean.
        by_query: Measure -> (queries,), NaN without a positive.
    """

    images: ScoredImages
    encoder: Any
    embeddings: np.ndarray
    neighbors: np.ndarray
    distances: np.ndarray
    by_query: dict[str, np.ndarray]

    @property
    def is_right(self) -> np.ndarray:
        """(queries, k), whether a neighbor is of the query's class."""
        labels = self.images.labels
        return labels[self.neighbors] == labels[: len(self.neighbors), None]


def search_all(encoder: Any, images: ScoredImages) -> Searched:
    """Embeds images and lets each query find its neighbors.

    Args:
        encoder: Keras model to embeddings, or a dict with `"embedding"`.
        images: The images.

    Returns:
        What was found, a query never among its own neighbors.
    """
    import keras_gsp as gsp
    from keras_gsp.embeddings.labeled_batches import embedding_of

    found = [
        embedding_of(encoder.predict_on_batch(pixels))
        for pixels in images.batches()
    ]
    embeddings = np.concatenate(found).astype("float32")
    queries, start = images.num_queries, images.gallery_start
    positions = np.arange(start, len(images))
    index = gsp.retrieval.ExactIndex(
        embeddings[start:], images.labels[start:], positions
    )
    nearest = index.search(
        embeddings[:queries],
        min(NEIGHBORS, len(positions) - (start == 0)),
        exclude_ids=np.arange(queries),
    )
    return Searched(
        images=images,
        encoder=encoder,
        embeddings=embeddings,
        neighbors=np.asarray(nearest.ids, "int64"),
        distances=np.asarray(nearest.distances),
        by_query=gsp.metrics.retrieval_scores(
            embeddings[:queries],
            images.labels[:queries],
            per_query=True,
            **_gallery(images, embeddings),
        )["per_query"],
    )


def _gallery(images, embeddings):
    start = images.gallery_start
    if start == 0:
        return {}
    return {
        "gallery_embeddings": embeddings[start:],
        "gallery_labels": images.labels[start:],
    }
