"""Retrieval scores: how many nearest neighbors are of the query's class."""

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from keras_gsp._checks import is_integer
from keras_gsp._embeddings import checked_embeddings, searched_sides
from keras_gsp._labels import checked_labels
from keras_gsp.metrics.rankings import (
    positive_ranks,
    ranks_by_distance,
    ranks_of_things,
)
from keras_gsp.metrics.relevance import Relevance, group_codes
from keras_gsp.metrics.reranking import reciprocal_distances, unit_rows

# Relative distance to a copy that was stored in float16.
HALF_PRECISION = 2.0**-11


def retrieval_scores(
    embeddings: Any,
    labels: Any,
    *,
    gallery_embeddings: Any = None,
    gallery_labels: Any = None,
    query_groups: Any = None,
    gallery_groups: Any = None,
    query_items: Any = None,
    gallery_items: Any = None,
    distractor_embeddings: Any = None,
    recall_at: Sequence[int] = (1, 2, 4, 8),
    map_at: Sequence[int] = (),
    average_precision: bool = False,
    reranking: Sequence[str] = (),
    per_class: bool = False,
    per_query: bool = False,
) -> dict[str, Any]:
    """Scores a retrieval exactly: P@1, P@R, MAP@R, Recall@k, mAP and CMC.

    Each query ranks the gallery by Euclidean distance between the embeddings
    as given (nothing is normalized). With `R` the number of gallery items of
    the query's class, the query itself excluded, and P@i the share of
    positives among its first i neighbors,

    ```
    P@R      = positives among the first R / R
    MAP@R    = 1 / R * sum over i <= R, i-th neighbor correct, of P@i
    Recall@k = 1 if there is a positive among the first k, else 0
    mAP@k    = 1 / min(k, R) * sum over i <= k, i-th neighbor correct, of P@i
    mAP      = 1 / R * sum over all i, i-th neighbor correct, of P@i
    ```

    and every score is the mean over the queries with a positive. `P@i` is the
    precision at i, not at R as equation (A.2) of the GSP paper prints it.
    Recall@k is the cumulative matching characteristic of re-identification.

    Without a gallery the queries search each other, and each is removed from
    its own ranking by its position: an identical copy elsewhere stays in.
    Equal distances are ordered by position in the gallery, and identical
    gallery items always have equal distances. The order is decided in float64.
    Memory: a few times 64 MB.

    Args:
        embeddings: (queries, size), finite.
        labels: (queries,) or (queries, 1), numbers or strings; or, for
            several labels per item, (queries, classes) booleans: items that
            share a label are positives of each other.
        gallery_embeddings: (gallery, size), finite. `None`: the queries are
            their own gallery.
        gallery_labels: the labels of a gallery, of the kind of `labels`.
        query_groups: (queries,), numbers or strings: a ranking excludes
            positives of the query's group, as re-identification excludes the
            same identity under the same camera.
        gallery_groups: (gallery,), the same for a gallery.
        query_items: (queries,), numbers or strings: the thing, such as a
            product, that each photograph shows. Things are then scored in
            place of photographs: each is one query and one gallery item, at
            the distance of its nearest photograph, and has one label.
        gallery_items: (gallery,), the same for a gallery.
        distractor_embeddings: (distractors, size), finite: gallery items that
            are no query's positive, after the gallery at equal distances.
        recall_at: the k of each Recall@k, at least 1; beyond the gallery: all.
        map_at: the k of each mAP@k, at least 1.
        average_precision: whether to rank the whole gallery for the mAP,
            which takes several times as long.
        reranking: `("k_reciprocal",)` scores this ranking too.
        per_class: whether to return the scores of each class too.
        per_query: whether to return those of each query, for
            `paired_difference`.

    Returns:
        A dict of Python numbers: `precision_at_1`, `precision_at_r`,
        `map_at_r`, one `recall_at_<k>` and one `map_at_<k>` for each k, and
        `mean_average_precision` if requested, all in [0, 1]; `tied_queries`,
        the share of queries whose score the order of the gallery decides: a
        negative follows or precedes a positive with an equal embedding (for
        things, at an equal distance); `num_queries`, the scored queries, and
        `num_dropped`, those without a positive. `"reranked"` maps each name
        in `reranking` to a dict of the same scores, `"per_query"` each plain
        score to an array (queries,), NaN without a positive, and
        `"per_class"` each class of the queries (its column, for several
        labels per item) to a dict of its scores and counts.

    Raises:
        TypeError: labels that are neither numbers nor strings, or of
            different kinds for queries and gallery.
        ValueError: embeddings that are not finite; arguments that do not fit
            together; a thing with two labels; no query with a positive.

    Example:

    ```python
    embeddings = np.array([[0.0, 1.0], [0.1, 0.9], [1.0, 0.0], [0.9, 0.2]])
    labels = ["cat", "cat", "dog", "dog"]
    scores = gsp.metrics.retrieval_scores(embeddings, labels)
    scores["map_at_r"]  # 1.0
    ```

    Reference: Musgrave et al., "A metric learning reality check", 2020,
    section 3.2; Zheng et al., "Scalable person re-identification", 2015, for
    the groups.
    """
    measures: dict[str, Any] = {
        "recall_at": _checked_ranks(recall_at, "recall_at"),
        "map_at": _checked_ranks(map_at, "map_at"),
        "average_precision": average_precision,
    }
    if not set(reranking) <= {"k_reciprocal"}:
        raise ValueError(
            '`reranking` must be ("k_reciprocal",) or empty. '
            f"Received: reranking={tuple(reranking)}."
        )
    given = embeddings, labels, gallery_embeddings, gallery_labels
    sides = searched_sides(*given, may_be_multiple=True)
    if not sides.is_own_gallery and query_groups is None:
        warn_of_copies(_num_copies(sides), len(sides.embeddings))
    groups = query_groups, gallery_groups, distractor_embeddings
    if query_items is None and gallery_items is None:
        gallery, relevance = _gallery_and_relevance(sides, *groups)
        depth = max([1, *measures["recall_at"], *measures["map_at"]])
        depths = {"at_least": depth, "is_complete": average_precision}
        hits = positive_ranks(sides.embeddings, gallery, relevance, **depths)
    elif query_groups is not None or reranking:
        raise ValueError(
            "`query_items` and `gallery_items` must be None with "
            "`query_groups` or `reranking`. Received: both."
        )
    else:
        photographs = sides.embeddings, sides.gallery
        things, sides = _things(sides, query_items, gallery_items)
        gallery, relevance = _gallery_and_relevance(sides, *groups)
        alone = gallery[len(sides.gallery) :]
        hits = ranks_of_things(*photographs, things, relevance, alone)
    counts = relevance.num_positives
    rows_of: Any = partial(_rows_of_hits, num_positives=counts, **measures)
    rows = rows_of(hits)
    scores = _means(rows, counts)
    if reranking:
        hits = _reranked_hits(sides, gallery, relevance)
        scores["reranked"] = {"k_reciprocal": _means(rows_of(hits), counts)}
    if per_class:
        scores["per_class"] = _means_of_classes(sides, rows, counts)
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


def _things(sides, query_items, gallery_items):
    """The things of both sides' rows, and sides with a row for each thing."""
    if sides.is_own_gallery:
        if gallery_items is not None:
            raise ValueError(
                "`gallery_items` must come with a gallery. Received: no "
                "gallery_embeddings."
            )
        gallery_items = query_items
    queries, first = _numbered(query_items, sides.codes, "query_items")
    others = sides.gallery_codes
    gallery, others = _numbered(gallery_items, others, "gallery_items")
    return (queries, gallery), sides._replace(
        embeddings=sides.embeddings[first],
        codes=sides.codes[first],
        gallery=sides.gallery[others],
        gallery_codes=sides.gallery_codes[others],
    )


def _numbered(items, codes, name):
    """The thing of each row, in order of appearance, and its first row."""
    if items is None:
        return np.arange(len(codes)), np.arange(len(codes))
    items = checked_labels(items, len(codes), name)
    _, first, things = np.unique(items, return_index=True, return_inverse=True)
    things = np.argsort(np.argsort(first))[things.reshape(-1)]
    first = np.sort(first)
    is_other = codes != codes[first][things]
    if is_other.any():
        row = int(np.flatnonzero(is_other.reshape(len(codes), -1).any(1))[0])
        raise ValueError(
            f"`{name}` must have one label for all photographs of a thing. "
            f"Received: two for {items[row].item()!r}."
        )
    return things, first


def _means_of_classes(sides, rows, counts):
    codes, found = sides.codes, {}
    for code, name in enumerate(sides.classes):
        is_own = codes[:, code] if codes.ndim == 2 else codes == code
        if is_own.any():
            own = {key: row[is_own] for key, row in rows.items()}
            found[name] = _means(own, counts[is_own])
    return found


def _reranked_hits(sides, gallery, relevance):
    queries = unit_rows(sides.embeddings, "embeddings")
    items = unit_rows(gallery, "gallery_embeddings")
    rows = reciprocal_distances(queries, items, sides.is_own_gallery)
    for query, row in enumerate(rows):
        if relevance.num_positives[query] > 0:
            yield ranks_by_distance(row[None], np.array([query]), relevance)


def _gallery_and_relevance(sides, query_groups, gallery_groups, distractors):
    lengths = len(sides.codes), len(sides.gallery)
    groups, other_groups = group_codes(
        query_groups, gallery_groups, lengths, sides.is_own_gallery
    )
    gallery, codes = sides.gallery, sides.gallery_codes
    if distractors is not None:
        distractors = checked_embeddings(distractors, "distractor_embeddings")
        if distractors.shape[1] != gallery.shape[1]:
            raise ValueError(
                "`distractor_embeddings` must have the size of the embeddings, "
                f"{gallery.shape[1]}. Received: {distractors.shape[1]}."
            )
        count = len(distractors)
        gallery = np.concatenate([gallery, distractors])
        none = False if codes.ndim == 2 else -1
        nothing = np.full((count, *codes.shape[1:]), none, codes.dtype)
        codes = np.concatenate([codes, nothing])
        if other_groups is not None:
            other_groups = np.concatenate([other_groups, np.zeros(count, int)])
    relevance = Relevance(
        sides.codes,
        codes,
        is_own_gallery=sides.is_own_gallery,
        groups=groups,
        gallery_groups=other_groups,
    )
    if not relevance.num_positives.any():
        raise ValueError(
            "`labels` must give at least one query a positive: a gallery item "
            "of the same class other than itself. Received: "
            f"{len(sides.codes)} queries, none with a positive."
        )
    return gallery, relevance


def _rows_of_hits(hits, num_positives, **measures):
    """Returns the scores of each query, NaN without a positive."""
    rows: dict[str, np.ndarray] = {}
    is_tied = np.where(num_positives > 0, 0.0, np.nan)
    for queries, ranks, tied in hits:
        is_tied[tied] = 1.0
        found, local = np.unique(queries, return_inverse=True)
        part = ranked_scores(
            local.reshape(-1), ranks, num_positives[found], **measures
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


def _checked_ranks(ranks, name):
    ranks = tuple(ranks)
    if not all(is_integer(k, least=1) for k in ranks):
        raise ValueError(
            f"`{name}` must hold integers of at least 1. "
            f"Received: {name}={ranks}."
        )
    return tuple(dict.fromkeys(int(k) for k in ranks))


def ranked_scores(
    queries: np.ndarray,
    ranks: np.ndarray,
    num_positives: np.ndarray,
    *,
    recall_at: Sequence[int] = (),
    map_at: Sequence[int] = (),
    average_precision: bool = False,
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
    for k in map_at:
        size = np.minimum(positives, k)
        scores[f"map_at_{k}"] = mean(precisions, ranks <= k, size)
    if average_precision:
        every = mean(precisions, ranks > 0, positives)
        scores["mean_average_precision"] = every
    return scores
