"""Exact nearest-neighbor search, in bounded memory."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_gsp.embeddings.labeled_embeddings import nearby_origin
from keras_gsp.ops.arguments import check_count
from keras_gsp.ops.precision import full_precision_matmul
from keras_gsp.retrieval.index import host_scan
from keras_gsp.retrieval.index.gallery import (
    SHARD_ROWS,
    Gallery,
    load_gallery,
    save_gallery,
)
from keras_gsp.retrieval.index.nearest import (
    SPARE_CANDIDATES,
    nearest_candidates,
    ordered_exactly,
    rows_alike,
)
from keras_gsp.retrieval.index.search_index import (
    GalleryIndex,
    Neighbors,
    check_filled,
    checked_queries,
    excluded_positions,
    neighbors_at,
)
from keras_gsp.retrieval.index.where import Where
from keras_gsp.retrieval.matching import MatchThreshold
from keras_gsp.storage.whole import whole_folder

# Queries compared with a shard at once on a device: 64 MB of products.
QUERY_ROWS = 256


class ExactIndex(GalleryIndex):
    """Finds the nearest gallery items of a query by comparing with all.

    Distances are Euclidean, between the embeddings as given; equal distances
    are ordered by position in the gallery. Beside the gallery a search needs
    about 100 MB, whatever the sizes. A few hundred thousand items take
    milliseconds a query; beyond, see `ScannIndex` and `MilvusIndex`.

    The search runs on the host with NumPy's matrix product, and on the device
    where Keras' backend has a GPU or TPU.

    Args:
        embeddings: (items, size), finite. Default `None`: an empty index, to
            be filled with `add`.
        labels: (items,), numbers or strings. Default `None`: empty strings.
        ids: (items,), integers or strings, all different. Default `None`:
            the number of items that came before.
        attributes: arrays (items,) of numbers or strings by name, to filter
            searches by. Default `None`: none.
        storage: `"float32"` keeps embeddings as they are; `"float16"` rounds
            them to 11 bits in half the memory, `"int8"` to 8 bits in a
            quarter; `certificate` measures what that costs. Default
            `"float32"`.
        match: `MatchThreshold` calibrated for the encoder: searches then
            answer `is_match` too, and it is saved with the index. It may be
            assigned later. Default `None`.

    Raises:
        TypeError: labels, ids or attributes that are neither numbers nor
            strings.
        ValueError: embeddings that are empty, not finite or not of rank 2;
            lengths that do not match; an id given twice; an unknown storage.

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
        """Adds a shard to the gallery; see the class for the arguments."""
        self.gallery.add(embeddings, labels, ids, attributes)

    def upsert(
        self,
        embeddings: Any,
        labels: Any,
        ids: Any,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds items, in place of those of the same id.

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
        """Removes items; the ones behind them move up.

        Args:
            ids: ids of items; one that is not there is passed over.

        Returns:
            How many were there.
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
            k: number of neighbors, at least 1. More than the gallery holds
                returns the whole gallery. Default 10.
            exclude_ids: one id for each query that must not be returned, such
                as the query's own; an id that the gallery does not hold
                excludes nothing. Default `None`.
            where: which items may be returned: a dict from `"label"`, `"id"`
                or the name of an attribute to a value, to a list of values of
                which one must be there, or to a slice (`slice(2, 5)` is
                `2 <= value < 5`). All conditions must hold. Default `None`.

        Returns:
            `Neighbors`, with `counts` below k where there are no more.

        Raises:
            RuntimeError: an empty index.
            TypeError: `where` compares strings with numbers.
            ValueError: NaN or infinity, a wrong size, k below 1, another
                number of ids than of queries, an unknown column.
        """
        queries = checked_queries(queries, self.gallery)
        check_count(k=k)
        excluded = excluded_positions(exclude_ids, self.gallery, len(queries))
        selected = self.gallery.selected(where)
        # One more than asked for, to be dropped where an item is excluded.
        kept = min(int(k) + 1 + SPARE_CANDIDATES, len(self))
        needed = min(int(k) + (exclude_ids is not None), len(self))
        if _has_device():
            candidates = _on_device(self, queries, kept, selected)
        else:
            candidates = _on_host(self, queries, kept, selected, needed)
        distances, indices = self._ordered(queries, candidates, excluded)
        shown = slice(0, min(int(k), len(self)))
        return neighbors_at(
            self.gallery, indices[:, shown], distances[:, shown]
        )

    def search_exactly(self, queries: Any, k: int = 10) -> Neighbors:
        """Searches; here as `search` does."""
        return self.search(queries, k)

    def save(self, path: Any, *, overwrite: bool = False) -> None:
        """Writes the index to a folder of plain arrays and a JSON file.

        Args:
            path: folder to make.
            overwrite: whether to replace what is there. Default `False`.

        Raises:
            FileExistsError: something is there and `overwrite` is `False`.
            RuntimeError: an empty index.
        """
        check_filled(self.gallery)
        with whole_folder(path, overwrite=overwrite) as folder:
            save_gallery(self.gallery, folder, kind=self.kind)

    @classmethod
    def load(cls, path: Any, *, mmap: bool = False) -> "ExactIndex":
        """Reads an index that `save` wrote; pickled objects are refused.

        Args:
            path: the folder.
            mmap: whether the vectors stay on disk, for a gallery larger than
                memory; a search reads them from there, and their checksum is
                not compared. The folder must stay as it is. Default `False`.

        Returns:
            An `ExactIndex`.

        Raises:
            FileNotFoundError: no index there.
            ValueError: another kind of index, arrays that do not fit their
                description, damaged files, or pickled objects.
        """
        return cls._over(load_gallery(path, cls.kind, mmap=mmap)[0])

    def origin(self) -> np.ndarray:
        """Returns the point that distances are computed from, (size,)."""
        return nearby_origin(*self.gallery.bounds).astype("float32")

    def _ordered(self, queries, candidates, excluded):
        """Distances and indices of all candidates, (queries, candidates)."""
        found = []
        for start in range(0, len(queries), host_scan.QUERY_ROWS):
            some = slice(start, start + host_scan.QUERY_ROWS)
            vectors = self.gallery.vectors(candidates[some])
            found.append(
                ordered_exactly(
                    queries[some], vectors, candidates[some], excluded[some]
                )
            )
        distances, indices = zip(*found, strict=True)
        return np.concatenate(distances), np.concatenate(indices)


def _has_device():
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return bool(tf.config.list_logical_devices("GPU"))
    if keras.backend.backend() == "jax":
        import jax

        return jax.default_backend() != "cpu"
    return False


def _on_host(index, queries, kept, selected, needed):
    num_rows = len(index) if selected is None else int(selected.sum())
    block_rows = host_scan.rows_of_a_block(num_rows)
    blocks = index.gallery.blocks(block_rows, selected)
    origin = index.origin()
    halves = index.gallery.half_squares(origin)
    return host_scan.nearest_on_host(
        queries, blocks, origin, kept, halves, needed
    )


def _on_device(index, queries, kept, selected):
    """The same through Keras' backend, a shard at a time."""
    origin = index.origin()
    tensors = [
        ops.convert_to_tensor(queries[start : start + QUERY_ROWS] - origin)
        for start in range(0, len(queries), QUERY_ROWS)
    ]
    best: list[Any] = [None] * len(tensors)
    places = []
    num_before = 0
    with full_precision_matmul():
        for rows, positions in index.gallery.blocks(SHARD_ROWS, selected):
            rows = rows - origin
            half_squares = np.sum(np.square(rows), axis=1) / 2
            rows, half_squares = rows_alike(rows, half_squares)
            half_squares = ops.convert_to_tensor(half_squares)
            shard = ops.convert_to_tensor(rows)
            for i, tensor in enumerate(tensors):
                before = best[i] and (best[i], num_before)
                best[i] = nearest_candidates(
                    tensor, shard, half_squares, kept, before
                )
            num_before += len(rows)
            added = len(rows) - len(positions)
            places.append(np.pad(positions, (0, added), constant_values=-1))
    if not places:
        return np.full((len(queries), kept), -1)
    found = [ops.convert_to_numpy(indices) for _, indices in best]
    indices = np.concatenate(places)[np.concatenate(found)]
    # Fewer pass a filter than were asked for.
    missing = kept - indices.shape[1]
    return np.pad(indices, ((0, 0), (0, missing)), constant_values=-1)
