"""Approximate search: an engine proposes candidates, exact distances rank."""

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from keras_gsp.ops.neighbors import PRODUCT_NUMBERS, SPARE_CANDIDATES
from keras_gsp.retrieval.index.columns import blocks_of
from keras_gsp.retrieval.index.exact import GalleryIndex, ranked
from keras_gsp.retrieval.index.gallery import Gallery
from keras_gsp.retrieval.index.search_recall import (
    OWN_QUERIES,
    warn_of_low_recall,
)
from keras_gsp.retrieval.index.where import is_selected

# A filter that passes at most this many items is searched exactly.
FEW_SELECTED = 50_000
# Rows of the engine, where it has some that the gallery has not.
ROWS = "engine_rows.npy"


class Engine:
    """Rows that propose candidates, numbered in the order of their arrival.

    `learns`: whether clusters or codes come from the rows it is built of.
    """

    learns = True

    def __len__(self) -> int:
        raise NotImplementedError

    def append(self, vectors: np.ndarray) -> None:
        """Adds rows (rows, size), float32."""
        raise NotImplementedError

    def proposed(self, queries: np.ndarray, asked: int) -> np.ndarray:
        """Returns rows near each query, (queries, asked), -1 for none."""
        raise NotImplementedError

    def num_rescored(self, k: int) -> int:
        """Returns the least number of candidates to compare exactly."""
        return 0

    def write(self, folder: Path) -> dict[str, Any]:
        """Writes its files; returns values of `index.json` to read them."""
        raise NotImplementedError


class ApproximateIndex(GalleryIndex):
    """Base of the indexes whose engine proposes candidates.

    The engine keeps deleted items, which a search skips, until these are the
    majority and it is built again. Clusters and codes are learned again
    whenever the items have doubled. Too few items to learn from are searched
    exactly, with a warning.
    """

    # What to do about a low recall.
    remedy: str
    _engine: Engine | None = None
    # Row in the engine of each item of the gallery, rising.
    _rows: np.ndarray = np.zeros(0, "int64")
    # Items that the engine was built or compared with exact search of.
    _num_checked = 0

    def _built(self, gallery: Gallery) -> Engine:
        """An engine of a gallery with items; `RuntimeError`: too few."""
        raise NotImplementedError

    def _read(self, folder: Path, facts: dict[str, Any]) -> Engine:
        """The engine that `Engine.write` wrote, with its `facts`."""
        raise NotImplementedError

    def _found(self, queries, k, excluded, where, column=None):
        """Asks for candidates until enough pass; compares all of a few."""
        with self._threads.reading():
            gallery = self.gallery
            selected = is_selected(where, gallery.columns)
            num_passing = len(gallery)
            shown, is_few = min(k, len(gallery)), False
            if selected is not None:
                num_passing = int(selected.sum())
                is_few = num_passing <= max(FEW_SELECTED, shown)
            engine = self._engine
            if engine is None or is_few:
                return super()._found(queries, k, excluded, where, column)
            passing = partial(_passing, self._rows, selected)
            num_rows = len(engine)
            needed = max(
                shown + 1 + SPARE_CANDIDATES, engine.num_rescored(shown)
            )
            needed = min(needed, num_passing)
            asked = -(-needed * num_rows // num_passing)
            step = max(1, PRODUCT_NUMBERS // asked)
            parts = [
                _candidates(engine, some, asked, needed, passing)
                for some in blocks_of(queries, step)
            ]
            candidates = np.concatenate(parts)
            distances, indices = ranked(gallery, queries, candidates, excluded)
            is_tied = distances[:, -1] == distances[:, shown - 1]
            is_tied &= (indices[:, -1] >= 0) & (shown < needed < num_passing)
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

    def _publish(self, gallery, removed):
        if self._augmented is not None:  # The engine has augmented rows.
            super()._publish(gallery, removed)
            return
        rows = np.delete(self._rows, removed)
        added = np.arange(len(rows), len(gallery))
        engine = self._engine
        num_rows = 0 if engine is None else len(engine)
        is_stale = not num_rows or 2 * len(rows) < num_rows
        has_doubled = len(gallery) > 2 * self._num_checked
        if engine is None or is_stale or (has_doubled and engine.learns):
            self._rebuild(gallery)
            return
        vectors = gallery.vectors(added)
        with self._threads.alone():
            if len(added):
                engine.append(vectors)
            rows = np.append(rows, num_rows + np.arange(len(added)))
            self.gallery, self._rows = gallery, rows
        if has_doubled:
            self._check_recall()

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
        self._check_recall()

    def _check_recall(self):
        """Warns if own items miss their neighbors, until the items double."""
        self._num_checked = len(self.gallery)
        if self._engine is not None:
            some = np.linspace(0, len(self) - 1, OWN_QUERIES).astype(int)
            own = self.gallery.vectors(np.unique(some))
            exact = super()._found(own, 10, [None] * len(own), None)
            warn_of_low_recall(self.search(own, 10), exact, self.remedy)

    def _read_engine(self, folder, facts):
        if facts.get("is_trained", True):
            self._engine = self._read(folder, facts)
            self._rows = np.arange(len(self))
            if (folder / ROWS).exists():
                self._rows = np.load(folder / ROWS, allow_pickle=False)
            fits = len(self._engine) > self._rows.max(initial=-1)
            if len(self._rows) != len(self) or not fits:
                raise ValueError(
                    "The engine's file must fit its gallery. Received: "
                    f"{len(self._engine)} and {len(self)} items."
                )
            self._num_checked = len(self)

    def _write_engine(self, folder):
        if self._engine is None:
            return {"is_trained": False}
        if len(self._engine) != len(self):
            np.save(folder / ROWS, self._rows)
        return self._engine.write(folder)


def _passing(gallery_rows, selected, rows):
    """Positions of rows of an engine, -1 for what must not be returned."""
    found = np.searchsorted(gallery_rows, rows)
    found = np.minimum(found, len(gallery_rows) - 1)
    is_passing = gallery_rows[found] == rows
    if selected is not None:
        is_passing &= selected[found]
    return np.where(is_passing, found, -1)


def _candidates(engine, queries, asked, needed, passing):
    """Positions of the first candidates that pass, (queries, needed)."""
    num_rows = len(engine)
    while True:
        rows = engine.proposed(queries, asked)
        found = passing(rows)
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


def reason_of(error: Exception) -> str:
    """The last part of an engine's message, without its source line."""
    return str(error).rsplit(": ", 1)[-1].strip()
