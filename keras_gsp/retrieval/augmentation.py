"""Neighbor augmentation: each row becomes a mean of itself and its neighbors.

With unit rows G_0 (n, d) and queries Q_0 (m, d), a round of both is

    x_{t+1} = unit(x_t + sum of max(x_t . g, 0)^p g over its k nearest g in G_t)

where no row is its own neighbor, and [x_rounds, sqrt(w) x_0] is searched, by
Q_rounds . G_rounds + w Q_0 . G_0.
"""

import dataclasses
import itertools
import warnings
from typing import Any

import numpy as np

from keras_gsp._checks import (
    check_choice,
    check_count,
    check_integer,
    check_not_negative,
    check_positive,
)
from keras_gsp._embeddings import checked_embeddings
from keras_gsp._labels import checked_labels
from keras_gsp.metrics.retrieval import retrieval_scores
from keras_gsp.ops.neighbors import array_items
from keras_gsp.retrieval.space import WithConfig

NUM_NEIGHBORS = 1, 2, 4, 8, 16, 32
ROUNDS = 1, 2, 3
ORIGINAL_WEIGHTS = 0.0, 0.5, 1.0, 2.0
# One in so many rows of a class is a query when settings are chosen, and at
# most so many rows are.
HELD_OUT, MOST_QUERIES = 5, 2000
# Rows that are mixed at once.
MIXED_ROWS = 4096


@dataclasses.dataclass(frozen=True)
class NeighborAugmentation(WithConfig):
    """Searches a gallery whose rows know their neighbors.

    Each row of the gallery is replaced by the weighted mean of itself and its
    nearest rows, normalized, several times, and so is a query. It needs no
    labels, and pays where a thing has several photographs.

    As the `augmentation` of an index it decides the order of what is found.
    Distances, thresholds and duplicates are those of the original rows, so
    distances that are shown need not rise. A search costs a product more for
    each round, and twice the numbers in the last one.

    Args:
        num_neighbors: k, rows that each is mixed with, at least 0, which
            changes nothing. About a third of the photographs of a thing; too
            many mix classes and cost P@1 first.
        rounds: how often, at least 1.
        power: of the similarities that are the weights, positive.
        original_weight: w, of the original similarity, at least 0.

    Raises:
        ValueError: a number out of its range.

    Example:

    ```python
    labels = np.repeat(np.arange(20), 8)
    rng = np.random.default_rng(0)
    rows = np.eye(32)[labels] + 0.3 * rng.normal(size=(160, 32))
    chosen = gsp.retrieval.NeighborAugmentation.chosen(rows, labels)
    index = gsp.retrieval.ExactIndex(rows, labels, augmentation=chosen)
    assert index.search(np.eye(32)[3], k=7).labels.tolist() == [[3] * 7]
    ```

    Reference: Turcot and Lowe, "Better matching with fewer features", 2009,
    and Arandjelovic and Zisserman, "Three things everyone should know to
    improve object retrieval", 2012 (the gallery's side); Radenovic et al.,
    "Fine-tuning CNN image retrieval with no human annotation", 2018 (weights
    that are powers of similarities). Related: Iscen et al., "Efficient
    diffusion on region manifolds", 2017; Zhong et al., "Re-ranking person
    re-identification with k-reciprocal encoding", 2017.
    """

    num_neighbors: int = 2
    _: dataclasses.KW_ONLY
    rounds: int = 2
    power: float = 3.0
    original_weight: float = 1.0

    def __post_init__(self) -> None:
        check_integer(least=0, num_neighbors=self.num_neighbors)
        check_count(rounds=self.rounds)
        check_positive(power=self.power)
        check_not_negative(original_weight=self.original_weight)

    @classmethod
    def chosen(
        cls, rows: Any, labels: Any, score: str = "map_at_r"
    ) -> "NeighborAugmentation":
        """Chooses neighbors, rounds and weight by rows with labels.

        A fifth of each class, at most 2,000 rows in all, are queries that the
        others answer, with 0 to 32 neighbors, 1 to 3 rounds and weights of the
        original of 0 to 2. The best is taken; a gain below two standard errors
        counts as none, and `num_neighbors` is 0.

        Args:
            rows: (items, size), finite: embeddings of classes that the encoder
                was not trained on, about as many of each as the gallery has.
            labels: (items,), numbers or strings.
            score: what to choose by, `"map_at_r"` or `"precision_at_1"`.

        Raises:
            TypeError: labels that are neither numbers nor strings.
            ValueError: no class of two; another score; rows not finite.
        """
        check_choice(*SCORES, score=score)
        rows = checked_embeddings(rows, "rows")
        labels = checked_labels(labels, len(rows))
        is_query = _held_out(labels)

        def scores(gallery, queries):
            with warnings.catch_warnings():
                # Copies among the rows are no mistake here.
                warnings.simplefilter("ignore", UserWarning)
                found = retrieval_scores(
                    queries,
                    labels[is_query],
                    gallery_embeddings=gallery,
                    gallery_labels=labels[~is_query],
                    recall_at=(),
                    per_query=True,
                )["per_query"]
            return np.stack([found[name] for name in SCORES])

        gallery, queries = unit(rows[~is_query]), unit(rows[is_query])
        best, plain = cls(0), scores(gallery, queries)
        most = plain
        by = [SCORES.index(score), 1 - SCORES.index(score)]  # ties by the other
        for k in NUM_NEIGHBORS:
            turn = cls(k, rounds=max(ROUNDS))
            augmented = AugmentedRows(gallery, turn)
            expanded = augmented.expanded_rounds(queries)
            for rounds, weight in itertools.product(ROUNDS, ORIGINAL_WEIGHTS):
                candidate = cls(k, rounds=rounds, original_weight=weight)
                found = scores(
                    candidate.searched(augmented.rounds),
                    candidate.searched(expanded),
                )
                if tuple(_means(found)[by]) > tuple(_means(most)[by]):
                    best, most = candidate, found
        gains = (most - plain)[by[0]]
        gains = gains[~np.isnan(gains)]
        error = gains.std() / np.sqrt(len(gains))
        return best if gains.mean() > 2 * error else cls(0)

    def mixed(self, rows: np.ndarray, near: np.ndarray) -> np.ndarray:
        """A round: unit rows (rows, size) with theirs (rows, k, size)."""
        similarities = np.matmul(near, rows[:, :, None])[:, :, 0]
        weights = np.maximum(similarities, 0) ** self.power
        return unit(rows + np.matmul(weights[:, None, :], near)[:, 0])

    def searched(self, rounds: list[np.ndarray]) -> np.ndarray:
        """What is searched of the rows of all rounds, the first included."""
        last = rounds[self.rounds]
        if not self.original_weight:
            return last
        root = np.float32(np.sqrt(self.original_weight))
        return np.concatenate([last, root * rounds[0]], axis=1)


SCORES = "map_at_r", "precision_at_1"


class AugmentedRows:
    """Rows of an array in each round, compared by the exact kernel.

    Attributes:
        rounds: arrays (items, size), float32, the original unit rows first.
    """

    def __init__(
        self, rows: np.ndarray, augmentation: NeighborAugmentation
    ) -> None:
        self.augmentation = augmentation
        self.rounds = [unit(rows)]
        for _ in range(augmentation.rounds):
            rows = self.rounds[-1]
            count = min(augmentation.num_neighbors + 1, len(rows))
            nearest = array_items(rows)(rows, count)
            self.rounds.append(self._mixed(rows, rows, without_own(nearest)))

    @property
    def rows(self) -> np.ndarray:
        """What is searched, (items, size), or twice as wide."""
        return self.augmentation.searched(self.rounds)

    def expanded(self, queries: np.ndarray) -> np.ndarray:
        """Queries (queries, size) as `rows` expects them."""
        return self.augmentation.searched(self.expanded_rounds(unit(queries)))

    def expanded_rounds(self, queries: np.ndarray) -> list[np.ndarray]:
        """Unit queries in each round."""
        expanded = [queries]
        for rows in self.rounds[:-1]:
            count = min(self.augmentation.num_neighbors, len(rows))
            near = np.zeros((len(queries), 0), int)
            if count:
                near = array_items(rows)(expanded[-1], count)
            expanded.append(self._mixed(expanded[-1], rows, near))
        return expanded

    def _mixed(self, rows, gallery, near):
        parts = [
            self.augmentation.mixed(
                rows[start : start + MIXED_ROWS],
                gallery[near[start : start + MIXED_ROWS]],
            )
            for start in range(0, len(rows), MIXED_ROWS)
        ]
        return np.concatenate(parts)


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows of length 1 in float32; zeros stay."""
    rows = np.asarray(rows, "float32")
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.maximum(lengths, np.finfo("float32").tiny)


def without_own(nearest: np.ndarray) -> np.ndarray:
    """Drops its own position from each row, or the last of its copies."""
    is_own = nearest == np.arange(len(nearest))[:, None]
    is_own[~is_own.any(axis=1), -1] = True
    return nearest[~is_own].reshape(len(nearest), -1)


def _held_out(labels):
    """Which rows are queries: a fifth of each class of two or more."""
    rng = np.random.default_rng(0)
    codes = np.unique(labels, return_inverse=True)[1]
    order = rng.permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]
    starts = np.searchsorted(codes[order], codes[order])
    sizes = np.bincount(codes)[codes[order]]
    wanted = np.where(sizes > 1, np.maximum(sizes // HELD_OUT, 1), 0)
    queries = order[np.arange(len(order)) - starts < wanted]
    if not len(queries):
        raise ValueError(
            "`labels` must have a class of two rows or more. Received: none."
        )
    is_query = np.zeros(len(codes), bool)
    is_query[rng.permutation(queries)[:MOST_QUERIES]] = True
    return is_query


def _means(scores):
    return np.nanmean(scores, axis=1)
