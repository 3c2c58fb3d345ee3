"""Approximate search: an engine proposes candidates, exact distances rank."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from keras_gsp.ops.neighbors import PRODUCT_NUMBERS, SPARE_CANDIDATES
from keras_gsp.retrieval.index.columns import blocks_of
from keras_gsp.retrieval.index.exact import GalleryIndex, ranked
from keras_gsp.retrieval.index.gallery import Gallery
from keras_gsp.retrieval.index.search_recall import warn_of_low_recall
from keras_gsp.retrieval.index.where import is_selected

# A filter that passes at most this many items is searched exactly.
FEW_SELECTED = 50_000


class ApproximateIndex(GalleryIndex):
    """Base of the indexes whose engine proposes candidates.

    The engine numbers its rows in the order of their arrival. It keeps
    deleted items, which a search skips, until it is built again: when they
    are the majority, or when the index is saved. Clusters and codes are learned
    again whenever the items have doubled. Too few items to learn from are
    searched exactly, with a warning. Readers see gallery, rows and engine of
    one moment.
    """

    # What to do about a low recall.
    remedy: str
    _engine: Any = None
    # Row in the engine of each item of the gallery, rising.
    _rows: np.ndarray = np.zeros(0, "int64")
    # Items that the engine was built of.
    _num_built = 0
    # An engine of a gallery that is not empty; `RuntimeError`: too few items.
    _built: Callable[[Gallery], Any]
    _num_rows: Callable[[], int]
    # Adds rows (rows, size), float32.
    _append: Callable[[np.ndarray], None]
    # Whether the engine compares with all items.
    _finds_all: Callable[[], bool]
    # Whether clusters or codes come from the items it is built of.
    _learns: Callable[[], bool]
    # Rows near each query, (queries, asked), -1 for none.
    _proposed: Callable[..., np.ndarray]
    # Writes the engine to a folder; more values of `index.json`, for `_read`.
    _write: Callable[[Path], dict[str, Any]]
    _read: Callable[[Path, dict[str, Any]], Any]

    def _found(self, queries, k, excluded, where, column=None, **options):
        """Asks for candidates until enough pass; compares all of a few."""
        with self._threads.reading():
            gallery = self.gallery
            selected = is_selected(where, gallery.columns)
            passing = np.arange(len(gallery))
            shown, is_few = min(k, len(gallery)), False
            if selected is not None:
                passing = np.flatnonzero(selected)
                is_few = len(passing) <= max(FEW_SELECTED, shown)
            if self._engine is None or is_few:
                return super()._found(queries, k, excluded, where, column)
            # Position of each row of the engine; -1: it must not be returned.
            num_rows = self._num_rows()
            places = np.full(num_rows, -1)
            places[self._rows[passing]] = passing
            needed = max(
                shown + 1 + SPARE_CANDIDATES, self._num_rescored(shown)
            )
            needed = min(needed, len(passing))
            asked = -(-needed * num_rows // len(passing))
            step = max(1, PRODUCT_NUMBERS // asked)
            parts = [
                self._passing(some, asked, needed, places, options)
                for some in blocks_of(queries, step)
            ]
            candidates = np.concatenate(parts)
            distances, indices = ranked(gallery, queries, candidates, excluded)
            is_tied = distances[:, -1] == distances[:, shown - 1]
            is_tied &= (indices[:, -1] >= 0) & (shown < needed < len(passing))
            distances, indices = distances[:, :shown], indices[:, :shown]
            # Clusters may hold too few items for k groups.
            is_short = (indices[:, -1] < 0) & (column is not None)
            left = np.flatnonzero(is_tied | is_short)
            if len(left):
                ids = [excluded[row] for row in left]
                exact = super()._found(queries[left], k, ids, where)
                distances[left], indices[left] = exact.distances, exact.indices
            return self._neighbors_at(
                distances, indices, shown, gallery, column
            )

    def _passing(self, queries, asked, needed, places, options):
        """Positions of the first candidates that pass, (queries, needed)."""
        num_rows = len(places)
        while True:
            rows = self._proposed(queries, asked, **options)
            found = np.where(rows < 0, -1, places[rows])
            counts = (found >= 0).sum(axis=1)
            # Fewer than asked for: the engine has no more.
            is_done = (counts >= needed) | (rows < 0).any(axis=1)
            if is_done.all() or asked >= num_rows:
                break
            asked = min(4 * asked, num_rows)
        order = np.argsort(found < 0, axis=1, kind="stable")[:, :needed]
        found = np.take_along_axis(found, order, axis=1)
        missing = needed - found.shape[1]
        return np.pad(found, ((0, 0), (0, missing)), constant_values=-1)

    def _publish(self, gallery, removed):
        if self._augmented is not None:  # The engine has augmented rows.
            super()._publish(gallery, removed)
            return
        rows = np.delete(self._rows, removed)
        added = np.arange(len(rows), len(gallery))
        num_rows = 0 if self._engine is None else self._num_rows()
        is_stale = not num_rows or 2 * len(rows) < num_rows
        has_doubled = len(gallery) > 2 * self._num_built
        if is_stale or (has_doubled and self._learns()):
            self._rebuild(gallery)
            return
        vectors = gallery.vectors(added)
        with self._threads.alone():
            if len(added):
                self._append(vectors)
            rows = np.append(rows, num_rows + np.arange(len(added)))
            self.gallery, self._rows = gallery, rows

    def _rebuild(self, gallery):
        """Builds an engine while others search, then replaces the old one."""
        engine, was_built = None, self._engine is not None
        try:
            engine = self._built(gallery) if len(gallery) else None
        except RuntimeError as error:
            if was_built or not len(self.gallery):
                warnings.warn(
                    f"{len(gallery)} items are too few to train the index of "
                    f"kind {self.kind!r}: searches compare with all of them "
                    f"until there are enough. {reason_of(error)}",
                    stacklevel=4,
                )
        with self._threads.alone():
            self.gallery, self._engine = gallery, engine
            self._rows = np.arange(len(gallery))
            self._num_built = len(gallery)
        if engine is not None and not self._finds_all():
            warn_of_low_recall(self, self.remedy)

    def _read_engine(self, folder, facts):
        if facts.get("is_trained", True):
            self._engine = self._read(folder, facts)
            if self._num_rows() != len(self):
                raise ValueError(
                    "The engine's file must fit its gallery. Received: "
                    f"{self._num_rows()} and {len(self)} items."
                )
            self._rows = np.arange(len(self))
            self._num_built = len(self)

    def _write_engine(self, folder):
        if self._engine is not None and self._num_rows() != len(self):
            self._rebuild(self.gallery)
        if self._engine is None:
            return {"is_trained": False}
        return self._write(folder)

    def _num_rescored(self, k: int) -> int:
        """Least number of candidates to compare exactly."""
        return 0


def reason_of(error: Exception) -> str:
    """The last part of an engine's message, without its source line."""
    return str(error).rsplit(": ", 1)[-1].strip()
