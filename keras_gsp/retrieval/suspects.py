"""Finds wrong labels, near duplicates and outliers of a labeled collection."""

import dataclasses
from collections import Counter
from typing import Any

import keras
import numpy as np

from keras_gsp._embeddings import checked_embeddings
from keras_gsp._labels import checked_labels
from keras_gsp.metrics.reranking import unit_rows
from keras_gsp.retrieval.duplicates import copies
from keras_gsp.retrieval.index.columns import blocks_of
from keras_gsp.retrieval.index.exact import ExactIndex

# Temperatures of which one is chosen, on at most so many items.
TEMPERATURES = np.geomspace(0.01, 1.0, 13)
CALIBRATED_ITEMS = 4096
# Probabilities computed at once (64 MB).
PROBABILITIES = 2**24
# Share of the neighbors above which they confirm a label.
TRUSTED = 0.25
# Thresholds: the first by planted labels, others
# on one half of the classes of emoji and birds.
WRONG_SCORE = 3e-4
FENCE = 1.5
# Neighbors of an item: at most, and in the smallest class.
NEIGHBORS, FEWEST = 10, 3
SAME_CLASS = 0.35


@dataclasses.dataclass(frozen=True, eq=False)
class Suspects:
    """What `suspects` found; positions count the items as they were given.

    Attributes:
        label_scores: (items,), probability of the item's own class over its
            mean among the items of that class; 1 for an only item.
        suggested: (items,), the most probable other label.
        wrong_labels: (found,), positions, most suspicious first.
        duplicates: (pairs, 2), positions, nearest pair first.
        outliers: (found,), positions, farthest first.
        same_classes: pairs of labels, the most similar pair first.
    """

    label_scores: np.ndarray
    suggested: np.ndarray
    wrong_labels: np.ndarray
    duplicates: np.ndarray
    outliers: np.ndarray
    same_classes: list[tuple[Any, Any]]


def suspects(embeddings: Any, labels: Any) -> Suspects:
    r"""Finds items of a collection that a person should look at.

    Embeddings are compared by cosine. With the mean direction :math:`m_c` of
    class c, the item itself left out, the probability of a class is

    .. math:: p_c(x) \propto \exp(\cos(x, m_c) / \tau)

    with the temperature of the largest likelihood on items of which more than
    a quarter of the nearest have the label (of all, where there are none).

    - Wrong label: :math:`p_y(x)` over its mean in class y is below 3e-4, and
      none of the nearest items (as many as its class has others, at most ten)
      has the label.
    - Near duplicates: the pairs of `gsp.retrieval.duplicates`.
    - Outlier: the distance to its last neighbor is above the third quartile
      by more than 1.5 times the interquartile range (Tukey's fence).
    - Classes that are one: items of each find the other's mean nearly as near
      as that of their own.

    Args:
        embeddings: (items, size), finite, of an encoder that was not trained
            on these labels if possible: a trained one fits wrong labels too.
        labels: (items,), numbers or strings, of at least two classes.

    Raises:
        ValueError: fewer than two classes, zero embeddings.

    Example:

    ```python
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(8), 20)
    rows = np.eye(16)[labels] + 0.1 * rng.normal(size=(160, 16))
    labels[3] = 5
    found = gsp.retrieval.suspects(rows, labels)
    assert found.wrong_labels.tolist() == [3]
    assert found.suggested[3] == 0
    ```

    Reference:
        Northcutt, Jiang and Chuang, "Confident Learning", JAIR 2021. Here a
        class's mean is compared with the label itself, not with another class.
    """
    rows = checked_embeddings(embeddings).astype("float64")
    rows = unit_rows(rows, "embeddings").astype("float32")
    labels = checked_labels(labels, len(rows))
    names, codes, sizes = np.unique(
        labels, return_inverse=True, return_counts=True
    )
    if len(names) < 2:
        raise ValueError(
            f"`labels` must have at least two classes. Received: {len(names)}."
        )
    num_neighbors = min(NEIGHBORS, len(rows) - 1)
    index = ExactIndex(rows)
    near = index.search(rows, num_neighbors, exclude_ids=index.ids()).indices
    distances = np.linalg.norm(rows[near] - rows[:, None], axis=2)
    # As many of the nearest as the class has other items.
    wanted = np.minimum(sizes[codes] - 1, num_neighbors)
    is_asked = np.arange(num_neighbors) < wanted[:, None]
    is_same = (codes[near] == codes[:, None]) & is_asked
    shares = is_same.sum(axis=1) / np.maximum(wanted, 1)
    agreement = np.where(wanted == 0, 1.0, shares)
    sharp, own, other, best = _probabilities(
        rows, codes, sizes, agreement > TRUSTED
    )
    means = np.maximum(np.bincount(codes, sharp) / sizes, 1e-30)
    scores = np.where(sizes[codes] == 1, 1.0, sharp / means[codes])
    # A neighbor from another class is far from a small class in itself.
    most = np.clip(sizes[codes] - 1, min(FEWEST, num_neighbors), num_neighbors)
    last = distances[np.arange(len(rows)), most - 1]
    low, high = np.quantile(last, [0.25, 0.75])
    pairs = _same_classes(own, other, best, codes, sizes)
    return Suspects(
        label_scores=scores,
        suggested=names[best],
        wrong_labels=_first(scores, (scores < WRONG_SCORE) & (agreement == 0)),
        duplicates=copies(rows)[0],
        outliers=_first(-last, last > high + FENCE * (high - low)),
        same_classes=[tuple(names[list(pair)].tolist()) for pair in pairs],
    )


def _first(values, is_found):
    """Positions of what is found, the smallest value first."""
    found = np.flatnonzero(is_found)
    return found[np.argsort(values[found], kind="stable")]


def _probabilities(rows, codes, sizes, is_trusted):
    """Probability of the own class, twice, of the best other, and which it is.

    First with the temperature of trusted labels, which wrong ones do not blur,
    then with that of all.
    """
    sums = np.zeros((len(sizes), rows.shape[1]), "float32")
    np.add.at(sums, codes, rows)
    means = keras.utils.normalize(sums)

    def similarities(some):
        found = rows[some] @ means.T
        without = keras.utils.normalize(sums[codes[some]] - rows[some])
        own = np.einsum("rs,rs->r", rows[some], without)
        found[np.arange(len(own)), codes[some]] = own
        return found

    def shares_of(logits):
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        return shares / shares.sum(axis=1, keepdims=True)

    def likeliest(items):
        sample = items[:: -(-len(items) // CALIBRATED_ITEMS) or 1]
        found, places = similarities(sample), np.arange(len(sample))

        def likelihood(temperature):
            own = shares_of(found / temperature)[places, codes[sample]]
            return np.log(np.maximum(own, 1e-38)).sum()

        return max(TEMPERATURES, key=likelihood)

    is_several = sizes[codes] > 1
    temperature = likeliest(np.flatnonzero(is_several))
    trusted = np.flatnonzero(is_several & is_trusted)
    sharp = likeliest(trusted) if len(trusted) else temperature
    parts = []
    for some in blocks_of(
        np.arange(len(rows)), PROBABILITIES // len(sizes) + 1
    ):
        found = similarities(some)
        places = np.arange(len(some)), codes[some]
        confirmed = shares_of(found / sharp)[places].astype("float64")
        shares = shares_of(found / temperature)
        own = shares[places].astype("float64")
        shares[places] = -1
        parts.append(
            (confirmed, own, shares.max(axis=1), shares.argmax(axis=1))
        )
    return tuple(map(np.concatenate, zip(*parts, strict=True)))


def _same_classes(own, other, best, codes, sizes):
    """Pairs of class numbers of which each finds the other as near."""
    mixed = other / np.maximum(own + other, 1e-30) / sizes[codes]
    shares: Counter = Counter()
    for item in np.flatnonzero(sizes[codes] > 1).tolist():
        shares[int(codes[item]), int(best[item])] += mixed[item]

    def least(pair):
        return min(shares[pair], shares[pair[::-1]])

    pairs = [(a, b) for a, b in shares if a < b and least((a, b)) >= SAME_CLASS]
    return sorted(pairs, key=least, reverse=True)
