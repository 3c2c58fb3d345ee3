"""The search of an index whose rows were mixed with their neighbors."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from keras_gsp.ops.neighbors import PRODUCT_NUMBERS
from keras_gsp.retrieval.augmentation import (
    MIXED_ROWS,
    NeighborAugmentation,
    unit,
)
from keras_gsp.retrieval.index.columns import blocks_of
from keras_gsp.retrieval.index.neighbors import Neighbors
from keras_gsp.retrieval.index.one_writer import OneWriter

# A change of a larger share of the items augments all of them.
LARGE_CHANGE = 0.25


class AugmentedSearch:
    """Indexes of the rows of each round, beside an index of the original ones.

    They have the engine of that index, and its ids; `index_of(number)` makes
    one, `rounds` are kept ones. Those of all rounds but the last find the
    neighbors to mix with; the last, which has the labels and attributes too, is
    searched.
    """

    def __init__(
        self,
        augmentation: NeighborAugmentation,
        index_of: Callable[[int], Any],
        rounds: Sequence[Any] = (),
    ) -> None:
        self.augmentation, self._index_of = augmentation, index_of
        self.rounds = list(rounds)
        self._threads = OneWriter()
        # Whether a change of the original was not followed to its end.
        self._is_behind = False

    def search(
        self, original: Any, queries: np.ndarray, k: int, *filters: Any
    ) -> Neighbors:
        """Neighbors of queries (things, photographs, size), in their order.

        Distances, positions and matches are those in the original index.
        `filters` are those of its `_nearest`.
        """
        self.catch_up(original)
        with self._threads.reading():
            rows = queries.reshape(-1, queries.shape[-1])
            rows = self._expanded(rows)
            rows = rows.reshape(*queries.shape[:2], -1)
            near = self.rounds[-1]._nearest(rows, k, *filters)
            return _measured(original, near, queries)

    @contextmanager
    def changing(self, original: Any, ids: Any) -> Iterator[None]:
        """Follows a change of some items of the original index."""
        with self._threads.changing, self._threads.alone():
            was_behind, self._is_behind = self._is_behind, True
            yield
            if was_behind or len(ids) > LARGE_CHANGE * len(original):
                self._augment_all(original)
            elif len(ids):
                self._follow(original, ids)
            self._is_behind = False

    def catch_up(self, original: Any) -> None:
        """Augments all rows if a change was interrupted."""
        if self._is_behind:
            self.refresh(original)

    def refresh(self, original: Any) -> None:
        """Augments all rows of the original index."""
        with self._threads.changing, self._threads.alone():
            self._augment_all(original)
            self._is_behind = False

    def _augment_all(self, original):
        ids, rounds = original.ids(), []
        for number in range(self.augmentation.rounds + 1):
            index = self._index_of(number)
            rounds.append(index)
            _delete(index, np.setdiff1d(index.ids(), ids))
        if len(ids):
            start, labels, ids, attributes = original.items(ids)
            rows = [unit(start)]
            for index in rounds[:-1]:
                index.upsert(rows[-1], None, ids)
                rows.append(self._mixed(index, rows[-1], ids))
            searched = self.augmentation.searched(rows)
            rounds[-1].upsert(searched, labels, ids, attributes)
        self.rounds = rounds

    def _follow(self, original, ids):
        first = self.rounds[0]
        rows, _, present, _ = original.items(ids)
        parts = [present, self._near(first, first.items(ids)[0])]
        for index in self.rounds:
            _delete(index, np.setdiff1d(ids, present))
        if len(present):
            first.upsert(unit(rows), None, present)
            parts.append(self._near(first, unit(rows)))
        touched = np.unique(np.concatenate(parts))
        start, labels, touched, attributes = original.items(touched)
        if not len(touched):
            return
        mixed = [unit(start)]
        for index, after in itertools.pairwise(self.rounds):
            mixed.append(self._mixed(index, mixed[-1], touched))
            if after is not self.rounds[-1]:
                after.upsert(mixed[-1], None, touched)
        searched = self.augmentation.searched(mixed)
        self.rounds[-1].upsert(searched, labels, touched, attributes)

    def _expanded(self, queries):
        """What is searched for."""
        rows = [unit(queries)]
        for index in self.rounds[:-1]:
            rows.append(self._mixed(index, rows[-1]))
        return self.augmentation.searched(rows)

    def _near(self, index, rows):
        """Ids of the items near some rows."""
        if not len(rows):
            return index.ids()[:0]
        near = index.search(rows, self.augmentation.num_neighbors + 1)
        return near.ids[np.isfinite(near.distances)]

    def _mixed(self, index, rows, ids=None):
        """A round of rows; `ids` are their own, if the index has them."""
        parts, count = [], self.augmentation.num_neighbors
        for some in blocks_of(np.arange(len(rows)), MIXED_ROWS):
            options = {} if ids is None else {"exclude_ids": ids[some]}
            near = index.search(rows[some], count, **options)
            vectors = index._located(near)[1]
            parts.append(self.augmentation.mixed(rows[some], vectors))
        return np.concatenate(parts)


def _delete(index, ids):
    if len(ids):
        index.delete(ids)


def _measured(original, near, queries):
    """Neighbors with the distances of another index; those in it alone."""
    distances, indices = np.zeros(near.ids.shape, "f4"), []
    numbers = near.ids.shape[1] * queries[0].size
    step = max(1, PRODUCT_NUMBERS // numbers)
    for some in blocks_of(np.arange(len(queries)), step):
        part = Neighbors(
            *(one[some] for one in (near.ids, near.labels, near.distances)),
            *(one[some] for one in (near.indices, near.counts)),
        )
        positions, vectors = original._located(part)
        indices.append(positions)
        gaps = vectors[:, None] - queries[some][:, :, None].astype("float64")
        squares = np.einsum("tpks,tpks->tpk", gaps, gaps).min(axis=1)
        distances[some] = np.sqrt(squares)
    distances[~np.isfinite(near.distances)] = np.inf
    match = original.match
    return dataclasses.replace(
        near,
        distances=distances,
        indices=np.concatenate(indices),
        is_match=None if match is None else match.is_match(distances),
    )
