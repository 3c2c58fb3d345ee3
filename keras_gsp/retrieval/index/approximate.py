"""Approximate search: an engine proposes candidates, exact distances rank."""

from pathlib import Path
from typing import Any

import numpy as np

from keras_gsp.ops.neighbors import (
    PRODUCT_NUMBERS,
    SPARE_CANDIDATES,
)
from keras_gsp.retrieval.index.exact import GalleryIndex

# A filter that passes at most this many items is searched exactly.
FEW_SELECTED = 50_000


class ApproximateIndex(GalleryIndex):
    """Base of the indexes whose engine proposes candidates.

    The engine numbers its rows in the order of their arrival. It keeps
    deleted items, which a search skips, until it is built again: when they
    are the majority, or when the index is saved. Clusters and codes that were
    learned from the first items also stay until then.
    """

    # Row in the engine of each item of the gallery, rising.
    _rows: np.ndarray = np.zeros(0, "int64")
    _num_rows = 0

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes the index; builds it again first if items were deleted."""
        if self._num_rows != len(self):
            self._rebuild()
        super().save(path, overwrite=overwrite)

    def _found(self, queries, k, excluded, where, **options):
        """Compares all items that pass a filter if they are few.

        Otherwise asks the engine for candidates until enough of them pass.
        """
        selected = self.gallery.selected(where)
        shown = min(k, len(self))
        num_passing = len(self) if selected is None else int(selected.sum())
        if selected is not None and num_passing <= max(FEW_SELECTED, shown):
            return super()._found(queries, k, excluded, where)
        # Position of each row of the engine; -1 for one that must not be
        # returned.
        places = np.full(self._num_rows, -1)
        is_kept = slice(None) if selected is None else selected
        places[self._rows[is_kept]] = np.arange(len(self))[is_kept]
        needed = max(shown + 1 + SPARE_CANDIDATES, self._num_rescored(shown))
        needed = min(needed, num_passing)
        asked = -(-needed * self._num_rows // num_passing)
        step = max(1, PRODUCT_NUMBERS // asked)
        parts = [
            self._passing(queries[i : i + step], asked, needed, places, options)
            for i in range(0, len(queries), step)
        ]
        candidates = np.concatenate(parts)
        distances, indices = self._ranked(queries, candidates, excluded)
        is_tied = distances[:, -1] == distances[:, shown - 1]
        tied = np.flatnonzero(is_tied & (indices[:, -1] >= 0))
        distances, indices = distances[:, :shown], indices[:, :shown]
        if len(tied) and shown < needed < num_passing:
            # More items are equally near than the engine was asked for.
            ids = [excluded[row] for row in tied]
            exact = super()._found(queries[tied], k, ids, where)
            distances[tied], indices[tied] = exact.distances, exact.indices
        return self._neighbors_at(distances, indices, shown)

    def _passing(self, queries, asked, needed, places, options):
        """Positions of the first candidates that pass, (queries, needed)."""
        while True:
            rows = self._proposed(queries, asked, **options)
            found = np.where(rows < 0, -1, places[rows])
            counts = (found >= 0).sum(axis=1)
            # Fewer than asked for: the engine has no more.
            is_done = (counts >= needed) | (rows < 0).any(axis=1)
            if is_done.all() or asked >= self._num_rows:
                break
            asked = min(4 * asked, self._num_rows)
        order = np.argsort(found < 0, axis=1, kind="stable")[:, :needed]
        found = np.take_along_axis(found, order, axis=1)
        missing = needed - found.shape[1]
        return np.pad(found, ((0, 0), (0, missing)), constant_values=-1)

    def _changed(self, removed):
        self._rows = np.delete(self._rows, removed)
        added = np.arange(len(self._rows), len(self))
        if self._num_rows and len(added):
            self._append(self.gallery.vectors(added))
            rows = self._num_rows + np.arange(len(added))
            self._rows = np.append(self._rows, rows)
            self._num_rows += len(added)
        if not self._num_rows or 2 * len(self._rows) < self._num_rows:
            self._rebuild()

    def _rebuild(self):
        self._count_rows(len(self))
        if len(self):
            self._build()

    def _count_rows(self, num_rows: int) -> None:
        """Notes that the engine holds the items of the gallery in order."""
        if num_rows != len(self):
            raise ValueError(
                "The engine's file must fit its gallery. Received: "
                f"{num_rows} and {len(self)} items."
            )
        self._num_rows = num_rows
        self._rows = np.arange(num_rows)

    def _build(self) -> None:
        """Builds the engine's index of the gallery, which is not empty."""
        raise NotImplementedError

    def _append(self, vectors: np.ndarray) -> None:
        """Adds rows (rows, size), float32, to the engine's index."""
        raise NotImplementedError

    def _num_rescored(self, k: int) -> int:
        """Least number of candidates to compare exactly."""
        return 0

    def _proposed(
        self, queries: np.ndarray, asked: int, **options: Any
    ) -> np.ndarray:
        """Rows of the engine near each query, (queries, asked), -1 for none."""
        raise NotImplementedError
