"""Approximate search: an engine proposes candidates, exact distances decide."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from keras_gsp.ops.arguments import check_count
from keras_gsp.retrieval.index.exact import ExactIndex, excluded_positions
from keras_gsp.retrieval.index.nearest import (
    SPARE_CANDIDATES,
    VECTOR_NUMBERS,
    ordered_exactly,
)
from keras_gsp.retrieval.index.saved_gallery import load_gallery, save_gallery
from keras_gsp.retrieval.index.search_index import (
    GalleryIndex,
    Neighbors,
    check_filled,
    checked_queries,
    neighbors_at,
    one_id_each,
)
from keras_gsp.retrieval.index.where import Where
from keras_gsp.storage.checksums import write_checksums
from keras_gsp.storage.whole import whole_folder

# A filter that at most so many items pass is searched exactly.
FEW_SELECTED = 50_000


class ApproximateIndex(GalleryIndex):
    """Base of the indexes whose engine proposes candidates.

    The engine numbers its rows as they come. Deleted items stay in it, are
    skipped, and leave with the next rebuild: when they are the majority, or
    when the index is saved. A subclass implements `_build`, `_append`,
    `_proposed`, `_write_engine`, `_read_engine` and `_facts`.
    """

    kind: str
    # Row in the engine of each item of the gallery, rising.
    _rows: np.ndarray
    _num_rows: int

    def upsert(
        self,
        embeddings: Any,
        labels: Any,
        ids: Any,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds items and replaces those with the same ids.

        What the engine learned from the first items, such as clusters and
        codes, stays until it is built again.

        Args:
            embeddings: as for the class.
            labels: as for the class.
            ids: as for the class, but not `None`.
            attributes: as for the class.
        """
        before = len(self.gallery)
        replaced = self.gallery.upsert(embeddings, labels, ids, attributes)
        if not self._num_rows:
            self._rebuild()
            return
        added = np.arange(before - len(replaced), len(self.gallery))
        self._append(self.gallery.vectors(added))
        rows = self._num_rows + np.arange(len(added))
        self._rows = np.append(np.delete(self._rows, replaced), rows)
        self._num_rows += len(added)
        self._drop_if_most_are_deleted()

    def delete(self, ids: Any) -> int:
        """Removes items; later items of the gallery move up.

        Args:
            ids: ids of items; unknown ids are ignored.

        Returns:
            Number of items removed.
        """
        positions = self.gallery.delete(ids)
        self._rows = np.delete(self._rows, positions)
        self._drop_if_most_are_deleted()
        return len(positions)

    def search_exactly(self, queries: Any, k: int = 10) -> Neighbors:
        """Finds the nearest items of each query by comparing with all.

        Args:
            queries: as for `search`.
            k: as for `search`.
        """
        return self._exact().search(queries, k)

    def save(self, path: Any, *, overwrite: bool = False) -> None:
        """Writes the index to a folder, without pickle, with checksums.

        An index that was changed is built again first.

        Args:
            path: folder to make.
            overwrite: whether to replace an existing folder. Default `False`.

        Raises:
            FileExistsError: `path` exists and `overwrite` is `False`.
            RuntimeError: an empty index.
        """
        check_filled(self.gallery)
        if self._num_rows != len(self):
            self._rebuild()
        with whole_folder(path, overwrite=overwrite) as folder:
            save_gallery(self.gallery, folder, kind=self.kind, **self._facts())
            self._write_engine(folder)
            write_checksums(folder)

    @classmethod
    def load(cls, path: str | Path, *, mmap: bool = False) -> Self:
        """Reads an index that `save` wrote; pickled objects are refused.

        Args:
            path: the folder.
            mmap: whether the vectors for exact distances stay on disk, as for
                `ExactIndex.load`; the engine's own files are read whole.
                Default `False`.

        Returns:
            The index.

        Raises:
            FileNotFoundError: no index there.
            ImportError: the engine is not installed.
            ValueError: another kind of index, arrays that do not fit their
                description, damaged files, or pickled objects.
        """
        cls._check_engine()
        index = cls.__new__(cls)
        index.gallery, facts = load_gallery(path, cls.kind, mmap=mmap)
        num_rows = index._read_engine(Path(path), facts)
        if num_rows != len(index.gallery):
            raise ValueError(
                f"The index in {str(path)!r} must fit its gallery. Received: "
                f"{num_rows} and {len(index.gallery)} items."
            )
        index._num_rows = num_rows
        index._rows = np.arange(num_rows)
        return index

    def _search(
        self,
        queries: Any,
        k: int,
        exclude_ids: Any,
        where: Where | None,
        num_rescored: int = 0,
        **options: Any,
    ) -> Neighbors:
        """Orders the engine's candidates by exact distance.

        Args:
            queries: as for `search`.
            k: as for `search`.
            exclude_ids: as for `search`.
            where: as for `search`.
            num_rescored: least number of candidates to compare exactly.
            **options: passed to `_proposed`.
        """
        gallery = self.gallery
        check_filled(gallery)
        queries = checked_queries(queries, gallery.embedding_size)
        check_count(k=k)
        shown = min(int(k), len(self))
        ids = one_id_each(exclude_ids, len(queries))
        excluded = excluded_positions(ids, gallery, len(queries))
        selected = gallery.selected(where)
        num_passing = len(self) if selected is None else int(selected.sum())
        if selected is not None and num_passing <= max(FEW_SELECTED, shown):
            return self._exact().search(
                queries, k, exclude_ids=exclude_ids, where=where
            )
        # Position of each row of the engine; -1 for one that must not be
        # returned.
        places = np.full(self._num_rows, -1)
        is_kept = slice(None) if selected is None else selected
        places[self._rows[is_kept]] = np.arange(len(self))[is_kept]
        needed = max(shown + 1 + SPARE_CANDIDATES, num_rescored)
        needed = min(needed, num_passing)
        asked = -(-needed * self._num_rows // num_passing)
        distances = np.full((len(queries), shown), np.inf, "float32")
        indices = np.full(distances.shape, -1)
        numbers = max(needed * queries.shape[1], asked)
        step = max(1, VECTOR_NUMBERS // numbers)
        tied = []
        for start in range(0, len(queries), step):
            some = slice(start, start + step)
            found = self._passing(queries[some], asked, needed, places, options)
            near, order = ordered_exactly(
                queries[some], gallery.vectors(found), found, excluded[some]
            )
            distances[some], indices[some] = near[:, :shown], order[:, :shown]
            is_tied = (near[:, -1] == near[:, shown - 1]) & (order[:, -1] >= 0)
            tied += (start + np.flatnonzero(is_tied)).tolist()
        if tied and needed > shown and needed < num_passing:
            # More items are equally near than the engine was asked for.
            ids = [ids[row] for row in tied]
            exact = self._exact().search(
                queries[tied], k, exclude_ids=ids, where=where
            )
            distances[tied], indices[tied] = exact.distances, exact.indices
        return neighbors_at(gallery, indices, distances)

    def _passing(self, queries, asked, needed, places, options):
        """Positions of the first candidates that pass, (queries, needed)."""
        while True:
            rows = self._proposed(queries, asked, options)
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

    def _drop_if_most_are_deleted(self):
        if 2 * len(self._rows) < self._num_rows:
            self._rebuild()

    def _rebuild(self):
        self._num_rows = len(self.gallery)
        self._rows = np.arange(self._num_rows)
        if self._num_rows:
            self._build()

    def _exact(self) -> ExactIndex:
        return ExactIndex._over(self.gallery)

    def _build(self) -> None:
        """Builds the engine's index of the gallery, which is not empty."""
        raise NotImplementedError

    def _append(self, vectors: np.ndarray) -> None:
        """Adds rows (rows, size), float32, to the engine's index."""
        raise NotImplementedError

    def _proposed(
        self, queries: np.ndarray, asked: int, options: dict[str, Any]
    ) -> np.ndarray:
        """Rows of the engine near each query, (queries, asked), -1 for none."""
        raise NotImplementedError

    def _facts(self) -> dict[str, Any]:
        """JSON values with which `_read_engine` restores the index."""
        raise NotImplementedError

    def _write_engine(self, folder: Path) -> None:
        """Writes the engine's files into the folder."""
        raise NotImplementedError

    def _read_engine(self, folder: Path, facts: dict[str, Any]) -> int:
        """Reads the engine's files and returns how many rows it has."""
        raise NotImplementedError
