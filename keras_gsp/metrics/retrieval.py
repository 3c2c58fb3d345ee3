"""Retrieval scores: how many of the nearest neighbours are of the same class.

| symbol | name | meaning |
| --- | --- | --- |
| R_i | `num_positives` | gallery items of query i's class, itself excluded |
| P@i | `precisions` | share of the first i neighbours that are positives |
"""

from typing import Any

import numpy as np

from keras_gsp.embeddings.labelled_embeddings import (
    checked_embeddings,
    class_codes,
)
from keras_gsp.metrics.rankings import checked_block_size, rankings


def retrieval_scores(
    embeddings,
    labels,
    *,
    gallery_embeddings=None,
    gallery_labels=None,
    recall_at=(1, 2, 4, 8),
    per_query: bool = False,
    block_size: int | None = None,
) -> dict[str, Any]:
    """Scores a retrieval: P@1, P@R, MAP@R and Recall@k, exactly.

    Each query ranks the gallery by Euclidean distance between the embeddings
    as given (nothing is normalised). With `R_i` the number of gallery items of
    the query's class, the query itself excluded,

    ```
    P@R_i   = positives among the first R_i / R_i
    MAP@R_i = 1 / R_i * sum over i <= R_i, i-th neighbour correct, of P@i
    R@k     = 1 if there is a positive among the first k, else 0
    ```

    and every score is the mean over the queries. `P(i)` is the precision at i,
    not at R as equation (A.2) of the GSP paper prints it. A query without any
    positive has no such score: it is left out and counted.

    Without a gallery the queries search each other, and each is removed from
    its own ranking by its position: an identical copy elsewhere stays in.
    Equal distances are ordered by position in the gallery, and identical
    gallery items always have equal distances.

    Distances come from one matrix product over data moved towards the origin,
    in float32, or in float64 for float64 embeddings (where the backend has
    it). Memory: `block_size` rows of the distance matrix.

    Args:
        embeddings: (queries, size), finite.
        labels: (queries,) or (queries, 1), numbers or strings.
        gallery_embeddings: (gallery, size), finite. Default `None`: the
            queries are their own gallery.
        gallery_labels: (gallery,) or (gallery, 1), of the kind of `labels`.
            Given exactly when `gallery_embeddings` is.
        recall_at: the k of each Recall@k, integers of at least 1. A k beyond
            the size of the gallery stands for the whole gallery.
        per_query: whether to return the scores of each query too, as
            `paired_difference` takes them. Default `False`.
        block_size: queries ranked at once, at least 1. Default `None`: as
            many as make 64 MB of float32 distances.

    Returns:
        A dict of Python numbers: `precision_at_1`, `precision_at_r`,
        `map_at_r` and one `recall_at_<k>` for each k, all in [0, 1];
        `num_queries`, the queries that were scored, and `num_dropped`, those
        without a positive. With `per_query`, under `"per_query"` a dict of
        the same scores, each an array (queries,) with NaN for those without a
        positive.

    Raises:
        TypeError: labels that are neither numbers nor strings, or labels of
            queries and gallery of different kinds.
        ValueError: embeddings that are empty, not finite or not of rank 2;
            lengths or sizes that do not match; half a gallery; a k or a block
            size below 1; not one query with a positive.

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
    embeddings = checked_embeddings(embeddings, "embeddings")
    recall_at = _checked_recall_at(recall_at)
    has_gallery = _has_gallery(gallery_embeddings, gallery_labels)
    if has_gallery:
        gallery = checked_embeddings(gallery_embeddings, "gallery_embeddings")
        _check_same_size(embeddings, gallery)
        codes, gallery_codes = class_codes(
            labels, len(embeddings), gallery_labels, len(gallery)
        )
    else:
        gallery = embeddings
        codes, _ = class_codes(labels, len(embeddings))
        gallery_codes = codes
    num_positives = np.bincount(gallery_codes, minlength=codes.max() + 1)[codes]
    if not has_gallery:
        num_positives -= 1
    if not num_positives.any():
        raise ValueError(
            "`labels` must give at least one query a positive: a gallery item "
            "of the same class other than itself. Received: "
            f"{len(codes)} queries of {len(np.unique(codes))} classes, none "
            "with a positive."
        )
    names = ["precision_at_1", "precision_at_r", "map_at_r"]
    names += [f"recall_at_{k}" for k in recall_at]
    rows = np.full((len(names), len(codes)), np.nan)
    for queries, neighbors in rankings(
        embeddings,
        gallery,
        num_positives,
        at_least=max(recall_at, default=1),
        block_size=checked_block_size(block_size, len(gallery)),
        remove_self=not has_gallery,
    ):
        is_correct = gallery_codes[neighbors] == codes[queries][:, None]
        rows[:, queries] = _block_scores(
            is_correct, num_positives[queries], recall_at
        )
    means = rows[:, num_positives > 0].mean(axis=1).tolist()
    scores = dict(zip(names, means, strict=True))
    scores["num_queries"] = int(np.count_nonzero(num_positives))
    scores["num_dropped"] = len(codes) - scores["num_queries"]
    if per_query:
        scores["per_query"] = dict(zip(names, rows, strict=True))
    return scores


def _block_scores(is_correct, num_positives, recall_at):
    """Scores of each query of a block; `is_correct` is (queries, ranks)."""
    ranks = np.arange(1, is_correct.shape[1] + 1)
    counted = is_correct & (ranks <= num_positives[:, None])
    precisions = np.cumsum(counted, axis=1) / ranks
    scores = [
        is_correct[:, 0],
        counted.sum(axis=1) / num_positives,
        (precisions * counted).sum(axis=1) / num_positives,
    ]
    return scores + [is_correct[:, :k].any(axis=1) for k in recall_at]


def _has_gallery(gallery_embeddings, gallery_labels):
    if (gallery_embeddings is None) != (gallery_labels is None):
        missing = "labels" if gallery_labels is None else "embeddings"
        raise ValueError(
            "`gallery_embeddings` and `gallery_labels` must be given together. "
            f"Received: no gallery_{missing}."
        )
    return gallery_embeddings is not None


def _check_same_size(embeddings, gallery):
    if embeddings.shape[1] != gallery.shape[1]:
        raise ValueError(
            "`embeddings` and `gallery_embeddings` must have the same size. "
            f"Received: {embeddings.shape[1]} and {gallery.shape[1]}."
        )


def _checked_recall_at(recall_at):
    recall_at = tuple(recall_at)
    for k in recall_at:
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise ValueError(
                "`recall_at` must hold integers of at least 1. "
                f"Received: recall_at={recall_at}."
            )
    return tuple(dict.fromkeys(int(k) for k in recall_at))
