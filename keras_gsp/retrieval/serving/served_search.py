"""A gallery inside a TensorFlow graph: embeddings to neighbours."""

from typing import Any

import numpy as np

from keras_gsp.ops.tensor import Tensor
from keras_gsp.retrieval.index.exact import ExactIndex
from keras_gsp.retrieval.index.gallery import SHARD_ROWS
from keras_gsp.retrieval.index.nearest import (
    SPARE_CANDIDATES,
    exact_order,
    nearest_candidates,
)
from keras_gsp.retrieval.index.scann_index import import_scann
from keras_gsp.retrieval.matching import MatchThreshold


class ServedGallery:
    """The variables of a gallery, and the searches that run on them.

    Args:
        index: `ExactIndex` or `ScannIndex`, not empty.
        neighbors: k of every search, at least 1.
        match: `MatchThreshold`, or `None` for answers without `is_match`.

    Attributes:
        variables: what a `tf.Module` must track, a dict.
        has_ann: whether `near` is there.
    """

    def __init__(
        self, index: Any, neighbors: int, match: MatchThreshold | None = None
    ) -> None:
        import tensorflow as tf

        gallery = index.gallery
        exact = ExactIndex()
        exact.gallery = gallery
        self.neighbors = min(neighbors, len(gallery))
        self.match = match
        self.origin = exact.origin()
        rows = gallery.embeddings - self.origin
        halves = np.sum(np.square(rows), axis=1) / 2
        with tf.device("/CPU:0"):
            self.variables = {
                "rows": tf.Variable(rows, trainable=False),
                "half_squares": tf.Variable(halves, trainable=False),
                # For those who search the rows themselves.
                "origin": tf.Variable(self.origin, trainable=False),
                "ids": tf.Variable(gallery.ids.astype("U").astype(object)),
                "labels": tf.Variable(
                    gallery.labels.astype("U").astype(object)
                ),
            }
        self.has_ann = index.kind == "scann"
        if self.has_ann:
            scann = import_scann()
            self._candidates = index.candidates
            searcher = index.built_with(scann.scann_ops.builder)
            self.variables["scann"] = searcher.serialize_to_module()

    def nearest(self, embeddings: Tensor) -> tuple[Any, Any]:
        """Exact search.

        Args:
            embeddings: (batch, size).

        Returns:
            Distances and indices, (batch, neighbors).
        """
        queries = embeddings - self.origin
        rows, halves = self.variables["rows"], self.variables["half_squares"]
        num_items = rows.shape[0]
        kept = min(self.neighbors + 1 + SPARE_CANDIDATES, num_items)
        best: Any = None
        for start in range(0, num_items, SHARD_ROWS):
            shard = slice(start, start + SHARD_ROWS)
            best = nearest_candidates(
                queries,
                rows[shard],
                halves[shard],
                kept,
                None if best is None else (best, start),
            )
        distances, indices = self._ordered(queries, best[1])
        return distances[:, : self.neighbors], indices[:, : self.neighbors]

    def near(self, embeddings: Tensor, num_neighbors: int | None = None) -> Any:
        """ScaNN's search; its distances are computed again exactly.

        Args:
            embeddings: (batch, size).
            num_neighbors: how many, at most the items. Default `None`:
                `neighbors`.

        Returns:
            Distances and indices, (batch, num_neighbors), -1 for none.
        """
        import tensorflow as tf

        wanted = num_neighbors or self.neighbors
        scann = import_scann()
        searcher = scann.scann_ops.searcher_from_module(self.variables["scann"])
        indices, distances = searcher.search_batched(
            embeddings,
            final_num_neighbors=wanted,
            pre_reorder_num_neighbors=self._candidates(wanted),
        )
        indices = tf.where(tf.math.is_nan(distances), -1, indices)
        # ScaNN leaves columns out that no query fills.
        missing = wanted - tf.shape(indices)[1]
        indices = tf.pad(indices, [[0, 0], [0, missing]], constant_values=-1)
        indices = tf.ensure_shape(indices, (None, wanted))
        return self._ordered(embeddings - self.origin, indices)

    def described(
        self, distances: Tensor, indices: Tensor, is_read: Tensor
    ) -> Any:
        """Looks up ids and labels; an unreadable image has no neighbours.

        Args:
            distances: (batch, neighbors).
            indices: (batch, neighbors), -1 for none.
            is_read: (batch,), boolean.

        Returns:
            A dict of tensors: `ids`, `labels`, `distances` (batch, neighbors)
            and `counts` (batch,); with a threshold also `is_match` (batch,
            neighbors).
        """
        import tensorflow as tf

        is_found = (indices >= 0) & is_read[:, None]
        places = tf.where(is_found, indices, 0)
        found = {
            name: tf.where(
                is_found, tf.gather(self.variables[name], places), ""
            )
            for name in ("ids", "labels")
        }
        if self.match is not None:
            found["is_match"] = is_found & (distances <= self.match.distance)
        return found | {
            "distances": tf.where(is_found, distances, np.inf),
            "counts": tf.reduce_sum(tf.cast(is_found, "int32"), axis=1),
        }

    def _ordered(self, queries, indices):
        import tensorflow as tf

        vectors = tf.gather(self.variables["rows"], tf.maximum(indices, 0))
        return exact_order(queries, vectors, indices)
