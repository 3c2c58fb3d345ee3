"""How much an approximate index misses, measured on held-out queries."""

import warnings
from typing import Any

import numpy as np

from keras_gsp.embeddings.labeled_batches import LabeledBatches, encoded
from keras_gsp.embeddings.labeled_embeddings import checked_labels
from keras_gsp.metrics.retrieval import ranked_scores
from keras_gsp.ops.arguments import check_count
from keras_gsp.retrieval.index.search_index import (
    Neighbors,
    SearchIndex,
    neighbors_at,
)


def certificate(
    index: SearchIndex,
    queries: Any,
    labels: Any,
    k: int = 10,
    *,
    reference: SearchIndex | None = None,
) -> dict[str, Any]:
    """Measures what an index misses, beside exact search, on a sample.

    Args:
        index: any of the indexes.
        queries: (queries, size), embeddings that are not in the gallery.
        labels: (queries,), their classes, of the gallery's kind.
        k: number of neighbors of which the recall is measured. Default 10.
        reference: an index of the same items to compare with, such as one in
            float32 beside one in int8. Default `None`: the index itself, all
            of its items compared with every query.

    Returns:
        A dict: `k`, `num_queries`, `recall` (share of the k true neighbors
        among the k found), and `map_at_r_exact`, `map_at_r_approximate`, the
        means over the queries with a positive; `None` where there is none.

    Raises:
        ValueError: k below 1; labels that do not fit the queries.

    Example:

    ```python
    rows = np.random.default_rng(0).normal(size=(200, 16))
    labels = np.arange(200) % 20
    small = gsp.retrieval.ExactIndex(rows[20:], labels[20:], storage="int8")
    whole = gsp.retrieval.ExactIndex(rows[20:], labels[20:])
    facts = gsp.retrieval.certificate(
        small, rows[:20], labels[:20], k=5, reference=whole
    )
    assert facts["recall"] > 0.9
    ```
    """
    check_count(k=k)
    reference = index if reference is None else reference
    queries = np.atleast_2d(np.asarray(queries))
    labels = checked_labels(labels, len(queries))
    num_positives = _num_positives(reference, labels)
    depth = max(int(k), int(num_positives.max()))
    return compared(
        reference.search_exactly(queries, depth),
        index.search(queries, depth),
        labels,
        num_positives,
        int(k),
    )


def compared(
    exact: Neighbors,
    found: Neighbors,
    labels: np.ndarray,
    num_positives: np.ndarray,
    k: int,
) -> dict[str, Any]:
    """Compares what was found with the truth; see `certificate`.

    Args:
        exact: the true neighbors, at least `num_positives` of each query.
        found: those that were found, as many.
        labels: (queries,), classes of the queries.
        num_positives: (queries,), items of their class in the gallery.
        k: number of neighbors of which the recall is measured.
    """
    shares = []
    for true, near, ids, counts in zip(
        exact.ids[:, :k],
        found.ids[:, :k],
        np.minimum(exact.counts, k),
        np.minimum(found.counts, k),
        strict=True,
    ):
        shared = np.intersect1d(true[:ids], near[:counts])
        shares.append(len(shared) / max(int(ids), 1))
    return {
        "k": k,
        "num_queries": len(exact),
        "recall": float(np.mean(shares)),
        "map_at_r_exact": _map_at_r(exact, labels, num_positives),
        "map_at_r_approximate": _map_at_r(found, labels, num_positives),
    }


def measured_certificate(
    encoder: Any, index: Any, gallery: Any, held_out: Any
) -> dict[str, Any]:
    """Compares what an export finds with exact search; see `certificate`.

    Args:
        encoder: Keras model, images to embeddings.
        index: `ScannIndex`.
        gallery: `ServedGallery` of it.
        held_out: images that are not in the gallery, with their labels.
    """
    batches = LabeledBatches(held_out, "held_out", 64)
    embeddings, labels = encoded(encoder, batches)
    embeddings = embeddings.astype("float32")
    labels = checked_labels(labels, len(embeddings))
    num_positives = _num_positives(index, labels)
    depth = max(gallery.neighbors, int(num_positives.max()))
    # A few hundred queries at a time: ScaNN's batches are held in memory.
    blocks = np.array_split(embeddings, -(-len(embeddings) // 256))
    near = [gallery.near(block, depth) for block in blocks]
    distances, indices = (
        np.concatenate([answer[i].numpy() for answer in near]) for i in (0, 1)
    )
    return compared(
        index.search_exactly(embeddings, depth),
        neighbors_at(index.gallery, indices, distances),
        labels,
        num_positives,
        gallery.neighbors,
    )


def check_minimum_recall(
    index: Any, held_out: Any, minimum_recall: float, below_minimum: str
) -> None:
    """Raises `ValueError` for options that make no certificate."""
    if index.kind == "scann" and held_out is None:
        raise ValueError(
            "`held_out` must be given with a ScannIndex: images that are not "
            "in the gallery, to measure what the index misses. "
            "Received: held_out=None."
        )
    if not 0.0 <= minimum_recall <= 1.0:
        raise ValueError(
            "`minimum_recall` must be in [0, 1]. "
            f"Received: minimum_recall={minimum_recall}."
        )
    if below_minimum not in ("refuse", "warn"):
        raise ValueError(
            '`below_minimum` must be "refuse" or "warn". '
            f"Received: below_minimum={below_minimum!r}."
        )


def judge_certificate(
    certificate: dict[str, Any], minimum_recall: float, below_minimum: str
) -> None:
    """Refuses, or warns of, an index that misses too many neighbors."""
    if certificate["recall"] >= minimum_recall:
        return
    message = (
        f"ScaNN must find {minimum_recall:.3f} of the true neighbors. "
        f"Received: {certificate['recall']:.3f} at k={certificate['k']}. Give "
        "the index more leaves to search or more candidates to reorder."
    )
    if below_minimum == "refuse":
        raise ValueError(message)
    warnings.warn(message, stacklevel=3)


def _num_positives(index, labels):
    """Items of the gallery in the class of each query, (queries,)."""
    classes, codes = np.unique(labels, return_inverse=True)
    counts = [index.count({"label": one}) for one in classes.tolist()]
    return np.array(counts)[codes.reshape(-1)]


def _map_at_r(neighbors, labels, num_positives):
    is_scored = num_positives > 0
    if not is_scored.any():
        return None
    is_there = np.arange(neighbors.labels.shape[1]) < neighbors.counts[:, None]
    is_correct = (neighbors.labels == labels[:, None]) & is_there
    queries, ranks = np.nonzero(is_correct)
    scores = ranked_scores(queries, ranks + 1, num_positives)["map_at_r"]
    return float(scores[is_scored].mean())
