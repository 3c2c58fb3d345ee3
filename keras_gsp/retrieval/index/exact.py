"""Exact nearest-neighbour search, in bounded memory."""

import numpy as np
from keras import ops

from keras_gsp.embeddings.origin import nearby_origin
from keras_gsp.ops.arguments import check_count
from keras_gsp.ops.matmul_precision import full_precision_matmul
from keras_gsp.retrieval.index.gallery import SHARD_ROWS, Gallery
from keras_gsp.retrieval.index.gallery_files import load_gallery, save_gallery
from keras_gsp.retrieval.index.nearest import (
    SPARE_CANDIDATES,
    exact_order,
    nearest_candidates,
)
from keras_gsp.retrieval.index.neighbors import Neighbors, neighbors_at
from keras_gsp.retrieval.index.search_arguments import (
    check_filled,
    checked_queries,
    excluded_positions,
)
from keras_gsp.storage.whole import whole_folder

# Queries compared with a shard at once: 64 MB of products.
QUERY_ROWS = 256


class ExactIndex:
    """Finds the nearest gallery items of a query by comparing with all.

    Distances are Euclidean, between the embeddings as given; equal distances
    are ordered by position in the gallery. Beside the gallery a search needs
    one shard of it (65,536 rows) and 64 MB, whatever the sizes. A few hundred
    thousand items take milliseconds a query; beyond, see `ScannIndex`.

    Args:
        embeddings: (items, size), finite; kept as float32. Default `None`:
            an empty index, to be filled with `add`.
        labels: (items,), numbers or strings. Default `None`: empty strings.
        ids: (items,), integers or strings, all different. Default `None`:
            positions in the gallery.

    Raises:
        TypeError: labels or ids that are neither numbers nor strings.
        ValueError: embeddings that are empty, not finite or not of rank 2;
            lengths that do not match; an id given twice.

    Example:

    ```python
    index = gsp.retrieval.ExactIndex(
        np.eye(3), labels=["cat", "dog", "cow"], ids=["a", "b", "c"]
    )
    found = index.search(np.array([[0.9, 0.1, 0.0]]), k=2)
    assert found.ids.tolist() == [["a", "b"]]
    assert found.labels.tolist() == [["cat", "dog"]]
    ```
    """

    kind = "exact"

    def __init__(self, embeddings=None, labels=None, ids=None):
        self.gallery = Gallery(embeddings, labels, ids)

    @classmethod
    def from_encoder(cls, encoder, dataset, *, ids=None, batch_size=64):
        """Embeds a data set and indexes it.

        Args:
            encoder: Keras model, images to embeddings (or to a dict with
                `"embedding"`).
            dataset: a finite `tf.data.Dataset` or `keras.utils.PyDataset` of
                (images, labels) batches, or a tuple of two arrays.
            ids: one id for each image, in order. Default `None`: positions.
            batch_size: images embedded at once when arrays are given.

        Returns:
            An `ExactIndex`.
        """
        index = cls()
        index.gallery.add_encoded(encoder, dataset, ids, batch_size)
        return index

    def __len__(self):
        return len(self.gallery)

    def add(self, embeddings, labels=None, ids=None):
        """Adds a shard to the gallery; see the class for the arguments."""
        self.gallery.add(embeddings, labels, ids)

    def search(self, queries, k=10, *, exclude_ids=None) -> Neighbors:
        """Finds the k nearest gallery items of each query.

        Args:
            queries: (queries, size), or (size,) for a single one.
            k: number of neighbours, at least 1. More than the gallery holds
                returns the whole gallery. Default 10.
            exclude_ids: one id for each query that must not be returned, such
                as the query's own; an id that the gallery does not hold
                excludes nothing. Default `None`.

        Returns:
            `Neighbors`, with `counts` below k where there are no more.

        Raises:
            RuntimeError: an empty index.
            ValueError: NaN or infinity, a wrong size, k below 1, or another
                number of ids than of queries.
        """
        queries = checked_queries(queries, self.gallery)
        check_count(k=k)
        excluded = excluded_positions(exclude_ids, self.gallery, len(queries))
        best = self._best_candidates(queries, int(k))
        found = [
            self._ordered(queries[rows], indices, excluded[rows], int(k))
            for rows, indices in best
        ]
        distances, indices = zip(*found, strict=True)
        return neighbors_at(
            self.gallery, np.concatenate(indices), np.concatenate(distances)
        )

    def save(self, path, *, overwrite=False):
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
    def load(cls, path):
        """Reads an index that `save` wrote; pickled objects are refused.

        Args:
            path: the folder.

        Returns:
            An `ExactIndex`.

        Raises:
            FileNotFoundError: no index there.
            ValueError: another kind of index, arrays that do not fit their
                description, or pickled objects.
        """
        index = cls()
        index.gallery, _ = load_gallery(path, cls.kind)
        return index

    def origin(self):
        """Returns the point that distances are computed from, (size,)."""
        return nearby_origin(*self.gallery.bounds).astype("float32")

    def _best_candidates(self, queries, k):
        """Yields blocks of queries and the indices of their candidates."""
        # One more than asked for, to be dropped where an item is excluded.
        kept = min(k + 1 + SPARE_CANDIDATES, len(self))
        origin = self.origin()
        blocks = [
            slice(start, start + QUERY_ROWS)
            for start in range(0, len(queries), QUERY_ROWS)
        ]
        tensors = [ops.convert_to_tensor(queries[b] - origin) for b in blocks]
        best = [None] * len(blocks)
        num_before = 0
        with full_precision_matmul():
            for rows in self._shards(origin):
                half_squares = np.sum(np.square(rows), axis=1) / 2
                half_squares = ops.convert_to_tensor(half_squares)
                shard = ops.convert_to_tensor(rows)
                for i, tensor in enumerate(tensors):
                    before = best[i] and (best[i], num_before)
                    best[i] = nearest_candidates(
                        tensor, shard, half_squares, kept, before
                    )
                num_before += len(rows)
        for block, (_, indices) in zip(blocks, best, strict=True):
            yield block, ops.convert_to_numpy(indices)

    def _ordered(self, queries, indices, excluded, k):
        """Distances and indices of one block of queries, (queries, k)."""
        origin = self.origin()
        vectors = self._vectors(indices) - origin
        indices = np.where(indices == excluded[:, None], -1, indices)
        distances, indices = exact_order(
            ops.convert_to_tensor(queries - origin),
            ops.convert_to_tensor(vectors),
            ops.convert_to_tensor(indices.astype("int32")),
        )
        shown = slice(0, min(k, len(self)))
        return (
            ops.convert_to_numpy(distances)[:, shown],
            ops.convert_to_numpy(indices)[:, shown],
        )

    def _shards(self, origin):
        is_moved = origin.any()
        for shard in self.gallery.shards:
            for start in range(0, len(shard), SHARD_ROWS):
                rows = shard[start : start + SHARD_ROWS]
                yield rows - origin if is_moved else rows

    def _vectors(self, indices):
        """Gathers rows by their position in the whole gallery."""
        vectors = np.empty((*indices.shape, self.gallery.embedding_size), "f4")
        start = 0
        for shard in self.gallery.shards:
            inside = (indices >= start) & (indices < start + len(shard))
            vectors[inside] = shard[indices[inside] - start]
            start += len(shard)
        return vectors
