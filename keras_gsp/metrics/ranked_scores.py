"""Scores of each query from the ranks at which it meets its positives.

| symbol | name | meaning |
| --- | --- | --- |
| R | `num_positives` | positives of a query in its ranking |
| r_h | `ranks` | rank of the h-th nearest positive, from 1 |
| h / r_h | `precisions` | precision at that rank |
"""

from collections.abc import Sequence

import numpy as np


def ranked_scores(
    queries: np.ndarray,
    ranks: np.ndarray,
    num_positives: np.ndarray,
    *,
    recall_at: Sequence[int] = (),
    map_at: Sequence[int] = (),
    average_precision: bool = False,
) -> dict[str, np.ndarray]:
    """Computes the scores of queries from the ranks of their positives.

    Args:
        queries: (hits,), positions of queries in `num_positives`, all hits of
            a query together.
        ranks: (hits,), from 1, rising for each query; at least those up to
            the query's R and up to every k.
        num_positives: (queries,), at least 1 where there is a hit.
        recall_at: the k of each Recall@k.
        map_at: the k of each mAP@k.
        average_precision: whether to score the mAP, for which all ranks must
            be given.

    Returns:
        A dict from the name of a score to an array (queries,); 0 for a query
        without a hit, as its score is.
    """
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
        everywhere = np.ones(len(queries), bool)
        scores["mean_average_precision"] = mean(
            precisions, everywhere, positives
        )
    return scores
