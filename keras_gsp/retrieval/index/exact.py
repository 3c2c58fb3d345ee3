"""Exact nearest-neighbor search, in bounded memory."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_gsp.ops.arguments import check_count
from keras_gsp.retrieval.index.gallery import Gallery
from keras_gsp.retrieval.index.nearest import (
    SPARE_CANDIDATES,
    VECTOR_NUMBERS,
    block_rows,
    nearest_rows,
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
from keras_gsp.retrieval.matching import MatchThreshold
from keras_gsp.storage.checksums import write_checksums
from keras_gsp.storage.whole import whole_folder


class ExactIndex(GalleryIndex):
    """Finds the nearest gallery items of a query by comparing with all.

    Distances are Euclidean, between the embeddings as given; equal distances
    are ordered by position in the gallery. A search needs about 100 MB beside
    the gallery. A few hundred thousand items take milliseconds a query;
    `FaissIndex`, `ScannIndex` and `MilvusIndex` search larger galleries.

    Args:
        embeddings: (items, size), finite. Default `None`: an empty index.
        labels: (items,), numbers or strings. Default `None`: empty strings.
        ids: (items,), integers or strings, all different. Default `None`:
            the number of items added before.
        attributes: arrays (items,) of numbers or strings by name, to filter
            searches by. Default `None`: none.
        storage: `"float32"` keeps embeddings as they are; `"float16"` rounds
            them to 11 bits in half the memory, `"int8"` to 8 bits in a
            quarter; `search_recall` measures the loss. Default `"float32"`.
        match: `MatchThreshold` calibrated for the encoder. Searches then
            return `is_match`, and it is saved with the index. It may be
            assigned later. Default `None`.

    Raises:
        TypeError: labels, ids or attributes that are neither numbers nor
            strings.
        ValueError: embeddings that are empty, not finite or not of rank 2;
            lengths that differ; a repeated id; an unknown storage.

    Example:

    ```python
    index = gsp.retrieval.ExactIndex(
        np.eye(3),
        labels=["cat", "dog", "cow"],
        ids=["a", "b", "c"],
        attributes={"year": [2019, 2021, 2024]},
    )
    found = index.search(np.array([[0.9, 0.1, 0.0]]), k=2)
    assert found.ids.tolist() == [["a", "b"]]
    assert found.labels.tolist() == [["cat", "dog"]]

    recent = {"year": slice(2020, None), "label": ["dog", "cow"]}
    assert index.search(np.eye(3)[:1], k=1, where=recent).ids == [["b"]]
    index.upsert(np.eye(3)[:1], ["owl"], ["c"], {"year": [2025]})
    assert index.delete(["a", "unknown"]) == 1
    assert index.search(np.eye(3)[:1], k=1).labels == [["owl"]]
    ```
    """

    kind = "exact"

    def __init__(
        self,
        embeddings: Any = None,
        labels: Any = None,
        ids: Any = None,
        *,
        attributes: Mapping[str, Any] | None = None,
        storage: str = "float32",
        match: MatchThreshold | None = None,
    ) -> None:
        self.gallery = Gallery(
            embeddings, labels, ids, attributes, storage, match
        )

    @classmethod
    def _over(cls, gallery, **options):
        index = cls(**options)
        index.gallery = gallery
        return index

    def add(
        self,
        embeddings: Any,
        labels: Any = None,
        ids: Any = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds items; see the class for the arguments."""
        self.gallery.add(embeddings, labels, ids, attributes)

    def upsert(
        self,
        embeddings: Any,
        labels: Any,
        ids: Any,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds items and replaces those with the same ids.

        A replaced item moves to the end of the gallery. A refused call
        changes nothing.

        Args:
            embeddings: as for the class.
            labels: as for the class.
            ids: as for the class, but not `None`.
            attributes: as for the class.
        """
        self.gallery.upsert(embeddings, labels, ids, attributes)

    def delete(self, ids: Any) -> int:
        """Removes items; later items move up.

        Args:
            ids: ids of items; unknown ids are ignored.

        Returns:
            Number of items removed.
        """
        return len(self.gallery.delete(ids))

    def search(
        self,
        queries: Any,
        k: int = 10,
        *,
        exclude_ids: Any = None,
        where: Where | None = None,
    ) -> Neighbors:
        """Finds the k nearest gallery items of each query.

        Args:
            queries: (queries, size), or (size,) for a single one.
            k: number of neighbors, at least 1. With more than the gallery
                holds, the whole gallery is returned. Default 10.
            exclude_ids: one id for each query that must not be returned, such
                as the query's own; `None` and unknown ids exclude nothing.
                Default `None`.
            where: filter, a dict from `"label"`, `"id"` or the name of an
                attribute to a value, to a list of values of which one must
                hold, or to a slice (`slice(2, 5)` is `2 <= value < 5`). All
                conditions must hold. Default `None`.

        Returns:
            `Neighbors`, with `counts` below k where there are no more.

        Raises:
            RuntimeError: an empty index.
            TypeError: `where` compares strings with numbers.
            ValueError: NaN or infinity, a wrong size, k below 1, another
                number of ids than of queries, an unknown column.
        """
        gallery = self.gallery
        check_filled(gallery)
        queries = checked_queries(queries, gallery.embedding_size)
        check_count(k=k)
        excluded = excluded_positions(exclude_ids, gallery, len(queries))
        shown = min(int(k), len(gallery))
        # One more than asked for, because one item may be excluded.
        num_kept = min(shown + 1 + SPARE_CANDIDATES, len(gallery))
        blocks = self._blocks(block_rows(len(queries)), gallery.selected(where))
        candidates = nearest_rows(queries - gallery.origin, blocks, num_kept)
        step = max(1, VECTOR_NUMBERS // (num_kept * queries.shape[1]))
        indices = np.full((len(queries), shown), -1)
        distances = np.full(indices.shape, np.inf, "float32")
        for start in range(0, len(queries), step):
            some = slice(start, start + step)
            near, order = ordered_exactly(
                queries[some],
                gallery.vectors(candidates[some]),
                candidates[some],
                excluded[some],
            )
            distances[some], indices[some] = near[:, :shown], order[:, :shown]
        return neighbors_at(gallery, indices, distances)

    def search_exactly(self, queries: Any, k: int = 10) -> Neighbors:
        """Searches as `search` does."""
        return self.search(queries, k)

    def save(self, path: Any, *, overwrite: bool = False) -> None:
        """Writes the index to a folder: plain arrays, JSON and checksums.

        Args:
            path: folder to make.
            overwrite: whether to replace an existing folder. Default `False`.

        Raises:
            FileExistsError: `path` exists and `overwrite` is `False`.
            RuntimeError: an empty index.
        """
        check_filled(self.gallery)
        with whole_folder(path, overwrite=overwrite) as folder:
            save_gallery(self.gallery, folder, kind=self.kind)
            write_checksums(folder)

    @classmethod
    def load(cls, path: str | Path, *, mmap: bool = False) -> "ExactIndex":
        """Reads an index that `save` wrote; pickled objects are refused.

        Args:
            path: the folder.
            mmap: whether the vectors stay on disk, for a gallery larger than
                memory: searches read them from there, and their checksum is
                not compared. The folder must not change. Default `False`.

        Returns:
            An `ExactIndex`.

        Raises:
            FileNotFoundError: no index there.
            ValueError: another kind of index, arrays that do not fit their
                description, damaged files, or pickled objects.
        """
        return cls._over(load_gallery(path, cls.kind, mmap=mmap)[0])

    def _blocks(
        self, num_rows: int, selected: np.ndarray | None
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yields rows from the origin, half their squares and positions."""
        origin = self.gallery.origin
        halves = self.gallery.half_squares()
        for rows, positions in self.gallery.blocks(num_rows, selected):
            rows = rows - origin if origin.any() else rows
            yield rows, halves[positions], positions


def excluded_positions(
    exclude_ids: Any, gallery: Gallery, count: int
) -> np.ndarray:
    """Returns the position to exclude for each query, -2 for none."""
    positions = gallery.positions_of(one_id_each(exclude_ids, count))
    return np.where(positions < 0, -2, positions)
