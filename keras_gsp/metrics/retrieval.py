"""Retrieval scores: how many nearest neighbors are of the query's class."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_gsp._checks import check_count
from keras_gsp._embeddings import searched_sides
from keras_gsp.metrics.rankings import Relevance, positive_ranks

# Relative distance to a copy that was stored in float16.
HALF_PRECISION = 2.0**-11


def retrieval_scores(
    embeddings: Any,
    labels: Any,
    *,
    gallery_embeddings: Any = None,
    gallery_labels: Any = None,
    recall_at: Sequence[int] = (1, 2, 4, 8),
    per_query: bool = False,
) -> dict[str, Any]:
    """Scores a retrieval exactly: P@1, P@R, MAP@R and Recall@k (CMC).

    Each query ranks the gallery by Euclidean distance between the embeddings
    as given (nothing is normalized). With `R` the number of gallery items of
    the query's class, the query itself excluded, and P@i the share of
    positives among its first i neighbors,

    ```
    P@R      = positives among the first R / R
    MAP@R    = 1 / R * sum over i <= R, i-th neighbor correct, of P@i
    Recall@k = 1 if there is a positive among the first k, else 0
    ```

    and every score is the mean over the queries with a positive. `P@i` is the
    precision at i, not at R as equation (A.2) of the GSP paper prints it.
    Recall@k is the cumulative matching characteristic of re-identification.

    Without a gallery the queries search each other, and each is removed from
    its own ranking by its position: an identical copy elsewhere stays in.
    Equal distances are ordered by position in the gallery. The order is decided
    in float64, in a few times 64 MB of memory.

    Args:
        embeddings: (queries, size), finite.
        labels: (queries,) or (queries, 1), integers or strings.
        gallery_embeddings: (gallery, size), finite. `None`: the queries are
            their own gallery.
        gallery_labels: (gallery,), the labels of a gallery.
        recall_at: the k of each Recall@k, at least 1; beyond the gallery: all.
        per_query: whether to return the scores of each query too, for
            `paired_difference`.

    Returns:
        A dict of Python numbers: `precision_at_1`, `precision_at_r`,
        `map_at_r` and one `recall_at_<k>` for each k, all in [0, 1];
        `tied_queries`, the share of queries whose score the order of the
        gallery decides: a negative follows or precedes a positive with an
        equal embedding; `num_queries`, the scored queries, and `num_dropped`,
        those without a positive, of which a warning tells if the gallery lacks
        their classes. `"per_query"` maps each score to an array (queries,),
        NaN without a positive.

    Raises:
        TypeError: labels that are neither integers nor strings, or of
            different types for queries and gallery.
        ValueError: embeddings that are not finite; arguments that do not fit
            together; no query with a positive.

    Example:

    ```python
    embeddings = np.array([[0.0, 1.0], [0.1, 0.9], [1.0, 0.0], [0.9, 0.2]])
    labels = ["cat", "cat", "dog", "dog"]
    scores = gsp.metrics.retrieval_scores(embeddings, labels)
    scores["map_at_r"]  # 1.0
    ```

    Reference: Musgrave et al., "A metric learning reality check", 2020,
    section 3.2.
    """
    recall_at = tuple(dict.fromkeys(recall_at))
    for k in recall_at:
        check_count(recall_at=k)
    sides = searched_sides(
        embeddings, labels, gallery_embeddings, gallery_labels
    )
    relevance = Relevance(
        sides.codes, sides.gallery_codes, sides.is_own_gallery
    )
    counts = relevance.num_positives
    if not counts.any():
        raise ValueError(
            "`labels` must give at least one query a positive: a gallery item "
            "of the same class other than itself. Received: "
            f"{len(counts)} queries, none with a positive."
        )
    if not sides.is_own_gallery:
        warn_of_copies(_num_copies(sides), len(counts))
        if lost := int((counts == 0).sum()):
            warnings.warn(
                f"{lost:,} of {len(counts):,} queries have no item of their "
                "class in the gallery. They are left out, and scores without "
                "them may be higher.",
                stacklevel=2,
            )
    hits = positive_ranks(
        sides.embeddings, sides.gallery, relevance, max([1, *recall_at])
    )
    rows = _rows_of_hits(hits, counts, recall_at)
    scores = _means(rows, counts)
    if per_query:
        scores["per_query"] = rows
    return scores


def _num_copies(sides):
    """Number of queries that are rows of the gallery, up to rounding."""
    # Copies are neighbors on a line; others are rarely between them.
    line = np.random.default_rng(0).normal(size=sides.gallery.shape[1])
    places = sides.gallery @ line
    order = np.argsort(places)
    after = np.searchsorted(places[order], sides.embeddings @ line)
    is_copy = np.zeros(len(after), bool)
    sizes = np.linalg.norm(sides.embeddings, axis=1)
    for beside in (after - 1, after):
        near = sides.gallery[order[np.clip(beside, 0, len(order) - 1)]]
        gaps = np.linalg.norm(sides.embeddings - near, axis=1)
        is_copy |= gaps <= HALF_PRECISION * sizes
    return int(is_copy.sum())


def warn_of_copies(count: int, num_queries: int) -> None:
    """Warns of queries that find themselves: the same rows on both sides."""
    if count:
        warnings.warn(
            f"{count:,} of {num_queries:,} queries are at distance 0 to a "
            "gallery item, up to rounding. Images that are on both sides find "
            "themselves: leave them out of the gallery, or give no gallery, "
            "and each query is removed from its own ranking.",
            stacklevel=3,
        )


def _rows_of_hits(hits, num_positives, recall_at):
    """Returns the scores of each query, NaN without a positive."""
    rows: dict[str, np.ndarray] = {}
    is_tied = np.where(num_positives > 0, 0.0, np.nan)
    for queries, ranks, tied in hits:
        is_tied[tied] = 1.0
        found, local = np.unique(queries, return_inverse=True)
        part = ranked_scores(
            local.reshape(-1), ranks, num_positives[found], recall_at
        )
        for name, values in part.items():
            # A query without a hit scores 0.
            zeros = np.where(num_positives > 0, 0.0, np.nan)
            rows.setdefault(name, zeros)[found] = values
    return rows | {"tied_queries": is_tied}


def _means(rows, num_positives):
    """Returns the means over the queries with a positive, and the counts."""
    is_scored = num_positives > 0
    num_queries = int(np.count_nonzero(is_scored))
    named = rows.items() if num_queries else ()
    scores: dict[str, Any] = {
        name: float(row[is_scored].mean()) for name, row in named
    }
    num_dropped = len(is_scored) - num_queries
    return scores | {"num_queries": num_queries, "num_dropped": num_dropped}


def ranked_scores(
    queries: np.ndarray,
    ranks: np.ndarray,
    num_positives: np.ndarray,
    recall_at: Sequence[int] = (),
) -> dict[str, np.ndarray]:
    """Computes the scores of queries, 0 without a hit, from ranks of positives.

    A hit is a query, a sorted position in `num_positives`, and a rank from 1,
    rising for each query up to its number of positives and to every k.
    """
    # The precision at the rank r_h of the h-th nearest positive is h / r_h.
    count = len(num_positives)
    starts = np.flatnonzero(np.diff(queries, prepend=-1))
    sizes = np.diff(starts, append=len(queries))
    precisions = 1 + np.arange(len(queries)) - np.repeat(starts, sizes)
    precisions = precisions / ranks
    positives = np.maximum(num_positives, 1)

    def mean(values, counted, size):
        total = np.bincount(
            queries[counted], weights=values[counted], minlength=count
        )
        return total / size

    ones = np.ones(len(queries))
    is_first = np.zeros(len(queries), bool)
    is_first[starts] = True
    in_class_size = ranks <= num_positives[queries]
    scores = {
        "precision_at_1": mean(ones, ranks == 1, 1),
        "precision_at_r": mean(ones, in_class_size, positives),
        "map_at_r": mean(precisions, in_class_size, positives),
    }
    for k in recall_at:
        scores[f"recall_at_{k}"] = mean(ones, is_first & (ranks <= k), 1)
    return scores
