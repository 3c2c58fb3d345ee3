"""Finds wrong labels, near duplicates and outliers of a labeled collection."""

import dataclasses
from typing import Any

import numpy as np

from keras_gsp.embeddings.labeled_embeddings import (
    checked_embeddings,
    checked_labels,
)
from keras_gsp.ops.arguments import check_count
from keras_gsp.retrieval.index.exact import ExactIndex
from keras_gsp.retrieval.index.search_index import SearchIndex

# Temperatures of which one is chosen, on at most so many items.
TEMPERATURES = np.geomspace(0.01, 1.0, 13)
CALIBRATED_ITEMS = 4096
# Probabilities computed at once (64 MB).
PROBABILITIES = 2**24
# Thresholds, chosen on one half of the classes of emoji and birds.
WRONG_SCORE = 0.003
DUPLICATE_RATIO = 0.4
FENCE = 1.5
SAME_CLASS = 0.35


@dataclasses.dataclass(frozen=True, eq=False)
class Suspects:
    """What `suspects` found; positions count the items as they were given.

    Attributes:
        label_scores: (items,), probability of the item's own class over its
            mean among the items of that class, at least 0; 1 for the only
            item of a class, which cannot be judged.
        agreement: (items,), share of the nearest items with the same label,
            in [0, 1]; 1 for the only item of a class.
        suggested: (items,), the most probable other label.
        wrong_labels: (found,), positions, most suspicious first.
        duplicates: (pairs, 2), positions, nearest pair first.
        outliers: (found,), positions, farthest first.
        same_classes: pairs of labels, the most similar pair first.
    """

    label_scores: np.ndarray
    agreement: np.ndarray
    suggested: np.ndarray
    wrong_labels: np.ndarray
    duplicates: np.ndarray
    outliers: np.ndarray
    same_classes: list[tuple[Any, Any]]


def suspects(
    embeddings: Any,
    labels: Any,
    *,
    num_neighbors: int = 10,
    index: SearchIndex | None = None,
) -> Suspects:
    r"""Finds items of a collection that a person should look at.

    Embeddings are compared by cosine. Every judgment of an item leaves the
    item itself out. With the mean direction :math:`m_c` of class c, its own
    class's without the item, the probability of a class is

    .. math:: p_c(x) \propto \exp(\cos(x, m_c) / \tau)

    with the temperature of the largest likelihood.

    - Wrong label: the confident-learning score, :math:`p_y(x)` over its mean
      in class y, is below 0.003, and none of the nearest items (as many as
      its class has others, at most `num_neighbors`) has the label.
    - Near duplicates: a pair whose distance is below 0.4 times the geometric
      mean of the distances from both to their last neighbor. Pairs farther
      apart in rank than `num_neighbors` are not looked at.
    - Outlier: the distance to its last neighbor is above the third quartile
      by more than 1.5 times the interquartile range (Tukey's fence).
    - Classes that are one: items of each find the other's mean nearly as near
      as that of their own.

    Args:
        embeddings: (items, size), finite, of an encoder that was not trained
            on these labels if possible: a trained one fits wrong labels too.
        labels: (items,), numbers or strings, of at least two classes.
        num_neighbors: items that each is compared with, at least 2. Default
            10.
        index: an index of the same embeddings, of length 1 and in the same
            order, such as a `FaissIndex`, for collections of more than about
            100,000 items. Default `None`: exact search.

    Returns:
        `Suspects`.

    Raises:
        ValueError: fewer than two classes, not more items than
            `num_neighbors`, an index of another number of items, or zero
            embeddings; what an index refuses.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(8), 20)
    rows = np.eye(16)[labels] + 0.1 * rng.normal(size=(160, 16))
    labels[3] = 5
    found = gsp.retrieval.suspects(rows, labels)
    assert found.wrong_labels.tolist() == [3]
    assert found.suggested[3] == 0
    ```

    Reference:
        Northcutt, Jiang and Chuang, "Confident Learning: Estimating
        Uncertainty in Dataset Labels", JAIR 2021. Their threshold of a class
        is its mean probability, too; they compare it with the probability of
        another class, here with that of the label itself, which also works
        with a handful of items a class.
    """
    rows = checked_embeddings(embeddings).astype("float32")
    labels = checked_labels(labels, len(rows))
    names, codes = np.unique(labels, return_inverse=True)
    _check(rows, names, num_neighbors, index)
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    near, distances = _neighbors(rows, num_neighbors, index)
    sizes = np.bincount(codes)
    own, other, best = _probabilities(rows, codes, sizes)
    means = np.bincount(codes, own) / sizes
    is_alone = sizes[codes] == 1
    scores = np.where(is_alone, 1.0, own / np.maximum(means[codes], 1e-30))
    agreement = _agreement(near, codes, sizes)
    is_wrong = (scores < WRONG_SCORE) & (agreement == 0)
    wrong = np.flatnonzero(is_wrong)
    return Suspects(
        label_scores=scores,
        agreement=agreement,
        suggested=names[best],
        wrong_labels=wrong[np.argsort(scores[wrong], kind="stable")],
        duplicates=_duplicates(near, distances),
        outliers=_outliers(distances[:, -1]),
        same_classes=[
            (names[one].item(), names[two].item())
            for one, two in _same_classes(own, other, best, codes, sizes)
        ],
    )


def _check(rows, names, num_neighbors, index):
    check_count(num_neighbors=num_neighbors)
    if len(names) < 2:
        raise ValueError(
            f"`labels` must have at least two classes. Received: {len(names)}."
        )
    if not 2 <= num_neighbors < len(rows):
        raise ValueError(
            "`num_neighbors` must be at least 2 and below the number of items, "
            f"{len(rows)}. Received: num_neighbors={num_neighbors}."
        )
    if index is not None and len(index) != len(rows):
        raise ValueError(
            "`index` must hold the same items. "
            f"Received: {len(index)} and {len(rows)} items."
        )
    is_zero = ~rows.any(axis=1)
    if is_zero.any():
        raise ValueError(
            "`embeddings` must not be zero. Received: "
            f"{is_zero.sum()} rows of zeros, first row {is_zero.argmax()}."
        )


def _neighbors(rows, count, index):
    """Positions and distances of other items, (items, count), each sorted."""
    index = ExactIndex(rows) if index is None else index
    found = index.search(rows, count + 1)
    # An item is its own neighbor, or a duplicate pushed it out: one too many.
    is_own = found.indices == np.arange(len(rows))[:, None]
    order = np.argsort(is_own, axis=1, kind="stable")[:, :count]
    near = np.take_along_axis(found.indices, order, axis=1)
    return near, np.linalg.norm(rows[near] - rows[:, None], axis=2)


def _probabilities(rows, codes, sizes):
    """Probability of the own class and of the best other, and which it is."""
    sums = np.zeros((len(sizes), rows.shape[1]), "float32")
    np.add.at(sums, codes, rows)
    means = _directions(sums)

    def similarities(some):
        found = rows[some] @ means.T
        without = _directions(sums[codes[some]] - rows[some])
        own = np.einsum("rs,rs->r", rows[some], without)
        found[np.arange(len(own)), codes[some]] = own
        return found

    sample = np.arange(0, len(rows), -(-len(rows) // CALIBRATED_ITEMS))
    sample = sample[sizes[codes[sample]] > 1]
    logits = similarities(sample)
    temperature = min(
        TEMPERATURES, key=lambda t: _loss(logits / t, codes[sample])
    )
    own, other = np.empty(len(rows)), np.empty(len(rows))
    best = np.empty(len(rows), "int64")
    step = max(1, PROBABILITIES // len(sizes))
    for start in range(0, len(rows), step):
        some = np.arange(start, min(start + step, len(rows)))
        logits = similarities(some) / temperature
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        places = np.arange(len(some)), codes[some]
        own[some] = shares[places]
        shares[places] = -1
        best[some] = shares.argmax(axis=1)
        other[some] = shares.max(axis=1)
    return own, other, best


def _directions(sums):
    return sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)


def _loss(logits, codes):
    """Mean negative log likelihood; 0 without an item to judge."""
    if not len(codes):
        return 0.0
    largest = logits.max(axis=1)
    totals = np.exp(logits - largest[:, None]).sum(axis=1)
    own = logits[np.arange(len(codes)), codes]
    return float(np.mean(np.log(totals) + largest - own))


def _agreement(near, codes, sizes):
    wanted = np.minimum(sizes[codes] - 1, near.shape[1])
    is_asked = np.arange(near.shape[1]) < wanted[:, None]
    is_same = (codes[near] == codes[:, None]) & is_asked
    shares = is_same.sum(axis=1) / np.maximum(wanted, 1)
    return np.where(wanted == 0, 1.0, shares)


def _duplicates(near, distances):
    last = np.maximum(distances[:, -1], 1e-12)
    ratios = distances / np.sqrt(last[:, None] * last[near])
    rows, columns = np.nonzero(ratios < DUPLICATE_RATIO)
    pairs = np.sort(np.stack([rows, near[rows, columns]], axis=1), axis=1)
    pairs, first = np.unique(pairs, axis=0, return_index=True)
    order = np.argsort(ratios[rows, columns][first], kind="stable")
    return pairs[order]


def _outliers(distances):
    low, high = np.quantile(distances, [0.25, 0.75])
    far = np.flatnonzero(distances > high + FENCE * (high - low))
    return far[np.argsort(-distances[far], kind="stable")]


def _same_classes(own, other, best, codes, sizes):
    """Yields pairs of class numbers of which each finds the other as near."""
    shares: dict[tuple[int, int], float] = {}
    mixed = other / np.maximum(own + other, 1e-30) / sizes[codes]
    judged = np.flatnonzero(sizes[codes] > 1)
    for item in judged.tolist():
        pair = int(codes[item]), int(best[item])
        shares[pair] = shares.get(pair, 0.0) + mixed[item]
    found = {
        (one, two): min(share, shares.get((two, one), 0.0))
        for (one, two), share in shares.items()
        if one < two
    }
    pairs = [pair for pair, share in found.items() if share >= SAME_CLASS]
    return sorted(pairs, key=lambda pair: -found[pair])
