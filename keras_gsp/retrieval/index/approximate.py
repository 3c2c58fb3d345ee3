"""Approximate search: an engine proposes candidates, exact distances rank."""

from pathlib import Path
from typing import Any

import numpy as np

from keras_gsp.retrieval.index.exact import GalleryIndex, neighbors_at
from keras_gsp.retrieval.index.nearest import (
    SPARE_CANDIDATES,
    VECTOR_NUMBERS,
)
from keras_gsp.retrieval.index.search_index import Neighbors, one_id_each
from keras_gsp.retrieval.index.where import Where

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

    def search(
        self,
        queries: Any,
        k: int = 10,
        *,
        exclude_ids: Any = None,
        where: Where | None = None,
        **options: Any,
    ) -> Neighbors:
        """Finds k near gallery items of each query.

        If few items pass a filter, all of them are compared; otherwise the
        engine is asked for candidates until enough of them pass.

        The arguments are those of `SearchIndex.search`; `options` are the
        engine's own: `params` for faiss, `leaves_to_search` and
        `pre_reorder_num_neighbors` for ScaNN.
        """
        gallery = self.gallery
        queries, excluded = self._checked(queries, k, exclude_ids)
        shown = min(int(k), len(self))
        ids = one_id_each(exclude_ids, len(queries))
        selected = gallery.selected(where)
        num_passing = len(self) if selected is None else int(selected.sum())
        if selected is not None and num_passing <= max(FEW_SELECTED, shown):
            return super().search(
                queries, k, exclude_ids=exclude_ids, where=where
            )
        # Position of each row of the engine; -1 for one that must not be
        # returned.
        places = np.full(self._num_rows, -1)
        is_kept = slice(None) if selected is None else selected
        places[self._rows[is_kept]] = np.arange(len(self))[is_kept]
        needed = max(shown + 1 + SPARE_CANDIDATES, self._num_rescored(shown))
        needed = min(needed, num_passing)
        asked = -(-needed * self._num_rows // num_passing)
        step = max(1, VECTOR_NUMBERS // asked)
        parts = [
            self._passing(queries[i : i + step], asked, needed, places, options)
            for i in range(0, len(queries), step)
        ]
        distances, indices = self._ranked(
            queries, np.concatenate(parts), excluded
        )
        is_tied = distances[:, -1] == distances[:, shown - 1]
        tied = np.flatnonzero(is_tied & (indices[:, -1] >= 0))
        distances, indices = distances[:, :shown], indices[:, :shown]
        if len(tied) and shown < needed < num_passing:
            # More items are equally near than the engine was asked for.
            ids = [ids[row] for row in tied]
            exact = super().search(
                queries[tied], k, exclude_ids=ids, where=where
            )
            distances[tied], indices[tied] = exact.distances, exact.indices
        return neighbors_at(gallery, indices, distances)

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
