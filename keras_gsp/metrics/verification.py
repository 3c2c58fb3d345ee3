"""Verification scores: whether a distance separates pairs of one class.

| symbol | name | meaning |
| --- | --- | --- |
| t | threshold | a pair is accepted when its distance is at most t |
| TAR(t) | `true_accepts` | share of the pairs of one class accepted |
| FAR(t) | `false_accepts` | share of the pairs of two classes accepted |
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from keras_gsp._checks import check_interval
from keras_gsp._embeddings import moved_to_origin, searched_sides

# Distances of one block of rows with all others: 64 MB in float32.
BLOCK_NUMBERS = 2**24
# The curve is exact with at most this many positive pairs.
MAX_THRESHOLDS = 2**20


def verification_scores(
    embeddings: Any,
    labels: Any,
    *,
    false_accept_rates: Sequence[float] = (1e-2, 1e-3, 1e-4),
) -> dict[str, float | int]:
    """Scores how well the distance separates pairs of one class from others.

    A pair of items is accepted if its Euclidean distance (of the embeddings
    as given) is at most t, and

    ```
    AUC       = share of (positive, negative) pairs of pairs in which the
                positive is nearer; of equal ones half
    EER       = the error where 1 - TAR(t) = FAR(t), on the straight lines
                between the thresholds
    TAR@FAR f = largest TAR(t) of all t with FAR(t) <= f
    ```

    as in scikit-learn, but in less memory. The curve is exact unless there are
    more than a million positive pairs; it is then exact at a million of them,
    and the AUC is within 1e-5. A rate f below one over the number of negative
    pairs allows no false accept, and predicts little about unseen pairs.

    Args:
        embeddings: (items, size), finite.
        labels: (items,) or (items, 1), numbers or strings.
        false_accept_rates: the f of each TAR@FAR, in [0, 1].

    Returns:
        A dict of Python numbers: `auc`, `equal_error_rate` and one
        `true_accept_rate_at_<f>` for each f, all in [0, 1];
        `num_positive_pairs` and `num_negative_pairs`.

    Raises:
        TypeError: labels that are neither numbers nor strings.
        ValueError: embeddings that are not finite, a rate outside [0, 1], no
            pair of one class, or none of two.

    Example:

    ```python
    labels = np.repeat(np.arange(10), 4)
    rng = np.random.default_rng(0)
    embeddings = np.eye(10)[labels] + 0.2 * rng.normal(size=(40, 10))
    scores = gsp.metrics.verification_scores(embeddings, labels)
    scores["auc"] > 0.9  # True
    ```

    Reference: Fawcett, "An introduction to ROC analysis", 2006; rates as
    NIST's face recognition tests define them.
    """
    for rate in false_accept_rates:
        check_interval("[0, 1]", false_accept_rates=rate)
    pairs = PairDistances(embeddings, labels)
    false_accepts, true_accepts = _curve(pairs)
    scores = {
        # The trapezoid under the curve: ties count half.
        "auc": float(np.trapezoid(true_accepts, false_accepts)),
        "equal_error_rate": _equal_error_rate(false_accepts, true_accepts),
    }
    for rate in false_accept_rates:
        allowed = true_accepts[false_accepts <= rate]
        scores[f"true_accept_rate_at_{rate:g}"] = float(allowed.max())
    scores["num_positive_pairs"] = pairs.num_positives
    scores["num_negative_pairs"] = pairs.num_negatives
    return scores


def _curve(pairs):
    """Returns the corners of the curve (FAR, TAR), (0, 0) to (1, 1)."""
    near = pairs.positives()
    thresholds = np.sort(near)
    if len(thresholds) > MAX_THRESHOLDS:
        places = np.linspace(0, len(thresholds) - 1, MAX_THRESHOLDS)
        thresholds = thresholds[places.astype("int64")]
    thresholds = np.unique(thresholds)
    # Pairs below each threshold, and up to it: (2, thresholds).
    positives = np.zeros((2, len(thresholds)), "int64")
    negatives = np.zeros_like(positives)
    _count(positives, thresholds, near)
    for far in pairs.negatives():
        _count(negatives, thresholds, far)
    totals = pairs.num_negatives, pairs.num_positives
    # Column by column: below a threshold, then up to it.
    return [
        np.concatenate([[0], counts.T.reshape(-1), [total]]) / total
        for counts, total in zip((negatives, positives), totals, strict=True)
    ]


def _count(counts, thresholds, distances):
    distances.sort()
    counts[0] += np.searchsorted(distances, thresholds, side="left")
    counts[1] += np.searchsorted(distances, thresholds, side="right")


def _equal_error_rate(false_accepts, true_accepts):
    gaps = false_accepts - (1 - true_accepts)  # from -1 to 1, never falling
    after = int(np.argmax(gaps >= 0))
    both = slice(after - 1, after + 1)
    return float(np.interp(0.0, gaps[both], false_accepts[both]))


class PairDistances:
    """Squared distances of all pairs of items, each once, times `scale`."""

    def __init__(self, embeddings: Any, labels: Any) -> None:
        sides = searched_sides(embeddings, labels)
        rows, _, self.scale = moved_to_origin(sides.embeddings, sides.gallery)
        # Sorted by class, positive pairs lie in blocks on the diagonal.
        order = np.argsort(sides.codes, kind="stable")
        self._codes, self._rows = sides.codes[order], rows[order]
        self._squares = np.square(self._rows).sum(axis=1)
        sizes = np.bincount(self._codes)
        self.num_positives = int(np.sum(sizes * (sizes - 1)) // 2)
        total = len(rows) * (len(rows) - 1) // 2
        self.num_negatives = total - self.num_positives
        for classes, count in (
            ("one class", self.num_positives),
            ("two classes", self.num_negatives),
        ):
            if count == 0:
                raise ValueError(
                    f"`labels` must give at least one pair of {classes}. "
                    f"Received: {len(rows)} items and none."
                )

    def positives(self) -> np.ndarray:
        """Returns the squared distances of all positive pairs, flat."""
        return np.concatenate([self._near(rows)[0] for rows in self._blocks()])

    def negatives(self) -> Iterator[np.ndarray]:
        """Yields the squared distances of negative pairs, flat arrays."""
        for rows in self._blocks():
            _, near, stop = self._near(rows)
            yield near
            yield self._distances(rows, slice(stop, None)).reshape(-1)

    def _blocks(self):
        size = max(1, min(1024, BLOCK_NUMBERS // len(self._rows)))
        for start in range(0, len(self._rows), size):
            yield slice(start, min(start + size, len(self._rows)))

    def _near(self, rows):
        """Pairs of some rows with later ones of their classes, and the end."""
        codes = self._codes[rows]
        stop = int(np.searchsorted(self._codes, codes[-1], side="right"))
        columns = slice(rows.start, stop)
        distances = self._distances(rows, columns)
        is_same = codes[:, None] == self._codes[columns]
        is_later = np.tri(*distances.shape) == 0
        near, far = is_same & is_later, ~is_same & is_later
        return distances[near], distances[far], stop

    def _distances(self, rows, columns):
        products = self._rows[rows] @ self._rows[columns].T
        products *= -2
        products += self._squares[rows, None]
        products += self._squares[columns]
        return np.maximum(products, 0, out=products)
