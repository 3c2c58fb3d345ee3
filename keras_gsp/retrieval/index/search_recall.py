"""Recall of an approximate index, measured on held-out queries."""

import warnings
from typing import Any

import numpy as np

from keras_gsp._checks import check_count
from keras_gsp._labels import checked_labels
from keras_gsp.metrics.retrieval import ranked_scores, warn_of_copies
from keras_gsp.retrieval.index.columns import as_rows
from keras_gsp.retrieval.index.exact import ExactIndex, GalleryIndex
from keras_gsp.retrieval.index.neighbors import Neighbors
from keras_gsp.retrieval.index.search_index import SearchIndex

# Own items that a new index is tried with, and the least share to be found.
OWN_QUERIES, LEAST_RECALL = 100, 0.98


def search_recall(
    index: SearchIndex,
    queries: Any,
    labels: Any,
    k: int = 10,
    *,
    reference: SearchIndex | None = None,
) -> dict[str, Any]:
    """Measures the recall of an index against exact search, and its MAP@R.

    Args:
        index: any of the indexes.
        queries: as for `search`, embeddings that are not in the gallery;
            copies of its items are warned of.
        labels: (queries,), their classes.
        k: number of neighbors, at least 1.
        reference: an `ExactIndex` of the same items to compare with, such as
            float32 beside float16. `None`: one of the items of `index`, which
            reads those of a `MilvusIndex` into memory.

    Returns:
        A dict: `recall` (share of the k true neighbors among the k found, in
        [0, 1]), and `map_at_r_exact` and `map_at_r_approximate`, means over the
        queries with a positive in the gallery; `None` without any.

    Example:

    ```python
    rows = np.random.default_rng(0).normal(size=(200, 16))
    labels = np.arange(200) % 20
    small = gsp.retrieval.ExactIndex(rows[20:], labels[20:], storage="float16")
    whole = gsp.retrieval.ExactIndex(rows[20:], labels[20:])
    measured = gsp.retrieval.search_recall(
        small, rows[:20], labels[:20], k=5, reference=whole
    )
    assert measured["recall"] > 0.9
    ```
    """
    check_count(k=k)
    index._check_filled()
    reference = exact_copy(index) if reference is None else reference
    queries = np.atleast_2d(as_rows(queries, "queries"))
    labels = checked_labels(labels, len(queries))
    classes, codes = np.unique(labels, return_inverse=True)
    sizes = [reference.count({"label": one}) for one in classes.tolist()]
    num_positives = np.array(sizes)[codes.reshape(-1)]
    depth = max(int(k), int(num_positives.max()))
    exact = reference.search(queries, depth)
    warn_of_copies(int((exact.distances[:, 0] == 0).sum()), len(exact))
    found = index.search(queries, depth)
    return compared(exact, found, labels, num_positives, int(k))


def exact_copy(index: SearchIndex) -> ExactIndex:
    """Returns an exact index of the items of another one, shared if it can."""
    if isinstance(index, ExactIndex):
        return index
    if isinstance(index, GalleryIndex):
        return ExactIndex.from_index(index)
    rows, labels, ids, _ = index.items(index.ids())
    return ExactIndex(rows, labels, ids, augmentation=index.augmentation)


def warn_of_low_recall(near: Neighbors, truth: Neighbors, remedy: str) -> None:
    """Warns if own items miss too many of their 10 nearest, ties alike."""
    found, exact = near.distances, truth.distances
    last = np.where(np.isfinite(exact), exact, -1.0).max(axis=1, keepdims=True)
    is_near = (found <= last) & np.isfinite(found)
    recall = is_near.sum() / np.isfinite(exact).sum()
    if recall < LEAST_RECALL:
        warnings.warn(
            f"The index finds {recall:.0%} of the 10 nearest neighbors of a "
            f"sample of its own items. {remedy}; `search_recall` measures it.",
            stacklevel=2,
        )


def compared(
    exact: Neighbors,
    found: Neighbors,
    labels: np.ndarray,
    num_positives: np.ndarray,
    k: int,
) -> dict[str, Any]:
    """Compares at least `num_positives` found neighbors with the true ones."""
    shares = []
    for row in range(len(exact)):
        true = exact.ids[row, : min(exact.counts[row], k)]
        near = found.ids[row, : min(found.counts[row], k)]
        shares.append(np.isin(true, near).sum() / max(len(true), 1))
    return {
        "recall": float(np.mean(shares)),
        "map_at_r_exact": _mean(map_at_r(exact, labels, num_positives)),
        "map_at_r_approximate": _mean(map_at_r(found, labels, num_positives)),
    }


def map_at_r(
    neighbors: Neighbors, labels: np.ndarray, num_positives: np.ndarray
) -> np.ndarray:
    """Returns the MAP@R of each query, NaN without a positive."""
    is_correct = neighbors.labels == labels[:, None]
    is_correct &= np.isfinite(neighbors.distances)
    queries, ranks = np.nonzero(is_correct)
    scores = ranked_scores(queries, ranks + 1, num_positives)["map_at_r"]
    return np.where(num_positives > 0, scores, np.nan)


def own_map_at_r(
    index: SearchIndex, queries: np.ndarray, labels: np.ndarray, ids: Any
) -> np.ndarray:
    """Returns the MAP@R of an index's own items as queries, each left out."""
    _, codes, counts = np.unique(
        labels, return_inverse=True, return_counts=True
    )
    relevant = counts[codes] - 1
    depth = max(1, int(relevant.max()))
    found = index.search(queries, depth, exclude_ids=ids)
    return map_at_r(found, labels, relevant)


def _mean(scores):
    is_scored = ~np.isnan(scores)
    return float(scores[is_scored].mean()) if is_scored.any() else None
