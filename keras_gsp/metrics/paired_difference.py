"""The difference of two encoders on the same queries, with an interval.

| symbol | name | meaning |
| --- | --- | --- |
| d | `difference` | mean over seeds and queries of score a - score b |
| E_sc | `shares` | what seed s and class c add to d beyond their size |
| V | `variance` | of d, were other seeds and classes drawn |
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_gsp.embeddings.labeled_embeddings import checked_labels

METHODS = ("student", "bootstrap")
# Numbers that one batch of resamples gathers: 32 MB.
BATCH_NUMBERS = 2**22


def paired_difference(
    scores_a: Any,
    scores_b: Any,
    classes: Any,
    *,
    confidence: float = 0.95,
    method: str = "student",
    num_resamples: int = 9999,
    seed: int = 0,
) -> dict[str, float | int]:
    """Measures how much better encoder a is than b, with an interval.

    Both encoders answer the same queries, and the difference is taken query
    by query, so that hard queries weigh on neither side. Queries of one class
    are not independent, and a training has its luck: the interval says where
    the difference would lie with other classes and other seeds. Give the
    scores of every seed for that; of a single seed it speaks of other classes
    alone.

    With `D_sq` the difference of query q under seed s, `n_sc` the queries of
    class c, N all of them and d their mean difference,

    ```
    E_sc = sum over q in c of (D_sq - d) / N
    V    = S/(S-1) sum_s (sum_c E_sc)^2 + C/(C-1) sum_c (sum_s E_sc)^2 - V_sc
    ```

    where V_sc is the same sum over what neither the seed nor the class
    explains, which the first two both count. The interval is Student's,
    `d +- t sqrt(V)`, its degrees of freedom Satterthwaite's. It holds the
    truth about as often as it says with three seeds already. The percentiles
    of a bootstrap never leave the range of the seeds: with few seeds that
    vary more than the classes do, they hold it less often than they say;
    with many, or where the classes vary more, both are alike.

    Args:
        scores_a: scores of the first encoder, (queries,) or (seeds, queries),
            or a list with one (queries,) for each seed where their numbers
            of queries differ. NaN for a query that has no score.
        scores_b: the same of the second, NaN at the same places.
        classes: class of each query, numbers or strings: (queries,), alike
            for every seed, or a list with one (queries,) for each seed.
        confidence: share of the intervals that hold the truth, in (0, 1).
        method: `"student"` as above, or `"bootstrap"`: percentiles of
            resampled classes and seeds, which need not be symmetric.
        num_resamples: resamples of the bootstrap.
        seed: of the bootstrap.

    Returns:
        A dict of Python numbers: `difference` (a - b), `low` and `high`, the
        ends of its interval, `confidence`, and `mean_a` and `mean_b`;
        `num_queries`, those with a score summed over the seeds,
        `num_classes` and `num_seeds`.

    Raises:
        ImportError: SciPy is not installed.
        TypeError: classes that are neither numbers nor strings.
        ValueError: shapes that do not match, a query that only one encoder
            has a score for, infinite scores, fewer than two classes, or an
            argument out of its range.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

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
    clustering", 2011, for the sum of the two variances less their common
    part; here that part is what is left beside the seed and the class.
    """
    _check_arguments(confidence, method, num_resamples)
    rows_a = _rows_of_seeds(scores_a, "scores_a")
    rows_b = _rows_of_seeds(scores_b, "scores_b")
    rows_a, rows_b, codes = _paired(rows_a, rows_b, classes)
    num_classes = 1 + max(int(row.max(initial=-1)) for row in codes)
    sums, counts = (
        np.stack(
            [
                np.bincount(code, weights=weight, minlength=num_classes)
                for code, weight in zip(codes, weights, strict=True)
            ]
        )
        for weights in (
            [a - b for a, b in zip(rows_a, rows_b, strict=True)],
            [np.ones(len(code)) for code in codes],
        )
    )
    is_seen = counts.any(axis=0)
    sums, counts = sums[:, is_seen], counts[:, is_seen]
    if sums.shape[1] < 2:
        raise ValueError(
            "`classes` must hold at least two classes with a score. "
            f"Received: {sums.shape[1]}."
        )
    difference = float(sums.sum() / counts.sum())
    if method == "student":
        low, high = _student(sums, counts, confidence)
    else:
        low, high = _bootstrap(sums, counts, confidence, num_resamples, seed)
    return {
        "difference": difference,
        "low": low,
        "high": high,
        "confidence": float(confidence),
        "mean_a": float(np.concatenate(rows_a).mean()),
        "mean_b": float(np.concatenate(rows_b).mean()),
        "num_queries": int(counts.sum()),
        "num_classes": sums.shape[1],
        "num_seeds": len(rows_a),
    }


def _student(sums, counts, confidence):
    stats = _scipy_stats()
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
    half = stats.t.ppf((1 + confidence) / 2, freedom) * np.sqrt(variance)
    return float(difference - half), float(difference + half)


def _bootstrap(sums, counts, confidence, num_resamples, seed):
    stats = _scipy_stats()
    num_seeds, num_classes = sums.shape

    def resampled(classes, seeds=None, axis=-1):
        rows = np.zeros(1, int) if seeds is None else seeds
        chosen = rows[..., :, None], classes[..., None, :]
        return sums[chosen].sum((-1, -2)) / counts[chosen].sum((-1, -2))

    # Two samples that are not paired are resampled apart: classes and seeds.
    samples = [np.arange(num_classes)]
    if num_seeds > 1:
        samples.append(np.arange(num_seeds))
    found = stats.bootstrap(
        samples,
        resampled,
        n_resamples=num_resamples,
        batch=max(1, BATCH_NUMBERS // sums.size),
        vectorized=True,
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    low, high = found.confidence_interval
    return float(low), float(high)


def _scipy_stats():
    try:
        from scipy import stats
    except ImportError as error:
        raise ImportError(
            "`paired_difference` needs SciPy: pip install "
            f"'keras-gsp[statistics]'. Received: {error}."
        ) from error
    return stats


def _rows_of_seeds(scores, name):
    """Returns one float64 array of scores for each seed."""
    is_list = isinstance(scores, Sequence) and not isinstance(scores, str)
    if not (is_list and len(scores) and np.ndim(scores[0]) > 0):
        scores = np.asarray(scores)
        scores = scores[None] if scores.ndim == 1 else scores
    rows = [np.asarray(row, "float64") for row in scores]
    shapes = [row.shape for row in rows]
    if not rows or any(len(shape) != 1 for shape in shapes):
        raise ValueError(
            f"`{name}` must have shape (queries,) or (seeds, queries), or be "
            f"a list with one (queries,) for each seed. Received: {shapes}."
        )
    for row in rows:
        if np.isinf(row).any():
            raise ValueError(
                f"`{name}` must be finite, or NaN where a query has no score. "
                f"Received: {int(np.isinf(row).sum())} infinite scores."
            )
    return rows


def _paired(rows_a, rows_b, classes):
    """Returns the scores and class codes of the queries that have both."""
    lengths = [[len(row) for row in rows] for rows in (rows_a, rows_b)]
    if lengths[0] != lengths[1]:
        raise ValueError(
            "`scores_a` and `scores_b` must hold the same queries, seed by "
            f"seed. Received: {lengths[0]} and {lengths[1]} queries."
        )
    labels = _labels_of_seeds(classes, lengths[0])
    _, together = np.unique(np.concatenate(labels), return_inverse=True)
    codes = np.split(together.reshape(-1), np.cumsum(lengths[0])[:-1])
    for place, (a, b) in enumerate(zip(rows_a, rows_b, strict=True)):
        is_lone = np.isnan(a) != np.isnan(b)
        if is_lone.any():
            raise ValueError(
                "Both encoders must have a score for the same queries. "
                f"Received: {int(is_lone.sum())} queries with one score, the "
                f"first at position {int(np.argmax(is_lone))} of seed {place}."
            )
    kept = [~np.isnan(row) for row in rows_a]
    return tuple(
        [row[keep] for row, keep in zip(rows, kept, strict=True)]
        for rows in (rows_a, rows_b, codes)
    )


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


def _check_arguments(confidence, method, num_resamples):
    if not 0 < confidence < 1:
        raise ValueError(
            "`confidence` must be in (0, 1). "
            f"Received: confidence={confidence}."
        )
    if method not in METHODS:
        raise ValueError(
            f"`method` must be one of {METHODS}. Received: method={method!r}."
        )
    if isinstance(num_resamples, bool) or num_resamples < 1:
        raise ValueError(
            "`num_resamples` must be an integer of at least 1. "
            f"Received: num_resamples={num_resamples}."
        )
