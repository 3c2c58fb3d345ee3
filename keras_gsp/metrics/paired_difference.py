"""The difference of two encoders on the same queries, with an interval.

| symbol | name | meaning |
| --- | --- | --- |
| d | `difference` | mean over seeds and queries of score a - score b |
| E_sc | `shares` | deviation of seed s and class c from d |
| V | `variance` | of d, over seeds and classes |
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_gsp._labels import checked_labels
from keras_gsp._optional import needed


def paired_difference(
    scores_a: Any, scores_b: Any, classes: Any
) -> dict[str, float | int]:
    """Measures how much better encoder a is than b, with a 95 % interval.

    Both encoders answer the same queries, and the difference is taken query
    by query. The interval covers other classes and other seeds; with the
    scores of a single seed, other classes only. Models that share
    something, such as the training classes of a fold, are not independent:
    give their mean as one seed.

    With `D_sq` the difference of query q under seed s, `n_sc` the queries of
    class c, N all of them and d their mean difference,

    ```
    E_sc = sum over q in c of (D_sq - d) / N
    V    = S/(S-1) sum_s (sum_c E_sc)^2 + C/(C-1) sum_c (sum_s E_sc)^2 - V_sc
    ```

    where V_sc is the same sum over the residual of seed and class, which the
    first two both count. The interval is Student's, `d +- t sqrt(V)`, with
    Satterthwaite's degrees of freedom. Its coverage is close to 95 %
    from three seeds on.

    Args:
        scores_a: scores of the first encoder, (queries,) or (seeds, queries),
            or a list with one (queries,) for each seed where their numbers
            of queries differ. NaN for a query that has no score.
        scores_b: the same of the second, NaN at the same places.
        classes: class of each query, numbers or strings: (queries,) for all
            seeds, or a list with one (queries,) for each seed.

    Returns:
        A dict of Python numbers: `difference` (a - b), `low` and `high`, the
        ends of its interval, and `mean_a` and `mean_b`;
        `num_queries`, those with a score summed over the seeds,
        `num_classes` and `num_seeds`.

    Raises:
        ImportError: SciPy is not installed.
        TypeError: classes that are neither numbers nor strings.
        ValueError: shapes that do not match, a query that only one encoder
            has a score for, infinite scores, or fewer than two classes.

    Example:

    ```python
    labels = np.repeat(np.arange(12), 5)
    rng = np.random.default_rng(0)
    clean = np.eye(12)[labels] + 0.3 * rng.normal(size=(60, 12))
    noisy = clean + 0.5 * rng.normal(size=(60, 12))
    scores = [
        gsp.metrics.retrieval_scores(embeddings, labels, per_query=True)
        for embeddings in (clean, noisy)
    ]
    better = gsp.metrics.paired_difference(
        scores[0]["per_query"]["map_at_r"],
        scores[1]["per_query"]["map_at_r"],
        labels,
    )
    better["low"] > 0  # True
    ```

    Reference: Cameron, Gelbach and Miller, "Robust inference with multiway
    clustering", 2011: the sum of the two variances less their common part,
    which here is the residual.
    """
    rows_a = _rows_of_seeds(scores_a, "scores_a")
    rows_b = _rows_of_seeds(scores_b, "scores_b")
    lengths = [len(row) for row in rows_a]
    if lengths != [len(row) for row in rows_b]:
        raise ValueError(
            "`scores_a` and `scores_b` must hold the same queries, seed by "
            f"seed. Received: {lengths} and {[len(row) for row in rows_b]} "
            "queries."
        )
    labels = np.concatenate(_labels_of_seeds(classes, lengths))
    seeds = np.repeat(np.arange(len(lengths)), lengths)
    both = np.concatenate(rows_a), np.concatenate(rows_b)
    kept = _scored_by_both(*both, seeds)
    names, codes = np.unique(labels[kept], return_inverse=True)
    if len(names) < 2:
        raise ValueError(
            "`classes` must hold at least two classes with a score. "
            f"Received: {len(names)}."
        )
    of_a, of_b = both[0][kept], both[1][kept]
    cells = seeds[kept] * len(names) + codes.reshape(-1)
    sums, counts = (
        np.bincount(cells, weights, len(lengths) * len(names)).reshape(
            len(lengths), len(names)
        )
        for weights in (of_a - of_b, None)
    )
    # A seed without any score is none.
    scored = counts.any(axis=1)
    sums, counts = sums[scored], counts[scored]
    difference = float(sums.sum() / counts.sum())
    low, high = _interval(sums, counts)
    return {
        "difference": difference,
        "low": low,
        "high": high,
        "mean_a": float(of_a.mean()),
        "mean_b": float(of_b.mean()),
        "num_queries": int(counts.sum()),
        "num_classes": len(names),
        "num_seeds": len(counts),
    }


def _interval(sums, counts):
    install = "'keras-gsp[statistics]'"
    stats = needed("scipy", "paired_difference", install).stats
    total = counts.sum()
    difference = sums.sum() / total
    shares = (sums - difference * counts) / total
    num_seeds, num_classes = shares.shape
    of_classes = shares.sum(axis=0)
    parts = [np.square(of_classes).sum() * num_classes / (num_classes - 1)]
    degrees = [num_classes - 1]
    variance = parts[0]
    if num_seeds > 1:
        of_seeds = shares.sum(axis=1)
        rest = shares - of_classes / num_seeds - of_seeds[:, None] / num_classes
        both = (num_seeds - 1) * (num_classes - 1)
        parts += [
            np.square(of_seeds).sum() * num_seeds / (num_seeds - 1),
            np.square(rest).sum() * shares.size / both,
        ]
        degrees += [num_seeds - 1, both]
        # The subtracted part is counted twice in the others, in expectation;
        # in a small study it can exceed them.
        variance = max(parts[0] + parts[1] - parts[2], *parts)
    if variance == 0:
        return float(difference), float(difference)
    freedom = variance**2 / np.sum(np.square(parts) / degrees)
    # Never fewer than of the smallest part, never more than of all cells.
    freedom = max(freedom, min(degrees))
    half = stats.t.ppf(0.975, freedom) * np.sqrt(variance)
    return float(difference - half), float(difference + half)


def _rows_of_seeds(scores, name):
    """Returns one float64 array of scores for each seed."""
    seeds = scores if len(scores) and np.ndim(scores[0]) else [scores]
    rows = [np.asarray(row, "float64") for row in seeds]
    if any(row.ndim != 1 or np.isinf(row).any() for row in rows):
        raise ValueError(
            f"`{name}` must be finite or NaN, (queries,) or (seeds, queries), "
            "or a list with one (queries,) for each seed. Received: "
            f"{[row.shape for row in rows]}, "
            f"{sum(int(np.isinf(row).sum()) for row in rows)} infinite."
        )
    return rows


def _scored_by_both(scores_a, scores_b, seeds):
    """Returns which queries have a score; both encoders must agree."""
    is_lone = np.isnan(scores_a) != np.isnan(scores_b)
    if is_lone.any():
        first = int(np.argmax(is_lone))
        position = first - int(np.argmax(seeds == seeds[first]))
        raise ValueError(
            "Both encoders must have a score for the same queries. "
            f"Received: {int(is_lone.sum())} queries with one score, the "
            f"first at position {position} of seed {seeds[first]}."
        )
    return ~np.isnan(scores_a)


def _labels_of_seeds(classes, lengths):
    is_list = isinstance(classes, Sequence) and len(classes)
    if is_list and not isinstance(classes[0], str) and np.ndim(classes[0]) == 1:
        rows = list(classes)
    else:
        rows = [classes] * len(lengths)
    if len(rows) != len(lengths):
        raise ValueError(
            "`classes` must be given once, or once for each seed. Received: "
            f"{len(rows)} for {len(lengths)} seeds."
        )
    return [
        checked_labels(row, length, "classes")
        for row, length in zip(rows, lengths, strict=True)
    ]
