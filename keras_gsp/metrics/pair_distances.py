"""Squared distances of positive and of negative pairs, block by block."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_gsp.embeddings.labeled_embeddings import (
    moved_to_origin,
    searched_sides,
)

# Distances of one block of rows with all others: 64 MB in float32.
BLOCK_NUMBERS = 2**24


class PairDistances:
    """Squared distances of all pairs of items, each once, times `scale`."""

    def __init__(self, embeddings: Any, labels: Any) -> None:
        sides = searched_sides(embeddings, labels)
        rows, _, self.scale = moved_to_origin(sides.embeddings, sides.gallery)
        # Sorted by class, positive pairs lie in blocks on the diagonal.
        order = np.argsort(sides.codes, kind="stable")
        self._codes, self._rows = sides.codes[order], rows[order]
        self._squares = np.square(self._rows).sum(axis=1)
        sizes = np.bincount(self._codes)
        self.num_positives = int(np.sum(sizes * (sizes - 1)) // 2)
        total = len(rows) * (len(rows) - 1) // 2
        self.num_negatives = total - self.num_positives
        for classes, count in (
            ("one class", self.num_positives),
            ("two classes", self.num_negatives),
        ):
            if count == 0:
                raise ValueError(
                    f"`labels` must give at least one pair of {classes}. "
                    f"Received: {len(rows)} items and none."
                )

    def positives(self) -> np.ndarray:
        """Returns the squared distances of all positive pairs, flat."""
        return np.concatenate([self._near(rows)[0] for rows in self._blocks()])

    def negatives(self) -> Iterator[np.ndarray]:
        """Yields the squared distances of negative pairs, flat arrays."""
        for rows in self._blocks():
            _, near, stop = self._near(rows)
            yield near
            yield self._distances(rows, slice(stop, None)).reshape(-1)

    def _blocks(self):
        size = max(1, min(1024, BLOCK_NUMBERS // len(self._rows)))
        for start in range(0, len(self._rows), size):
            yield slice(start, min(start + size, len(self._rows)))

    def _near(self, rows):
        """Pairs of some rows with later ones of their classes, and the end."""
        codes = self._codes[rows]
        stop = int(np.searchsorted(self._codes, codes[-1], side="right"))
        columns = slice(rows.start, stop)
        distances = self._distances(rows, columns)
        is_same = codes[:, None] == self._codes[columns]
        is_later = np.tri(*distances.shape) == 0
        near, far = is_same & is_later, ~is_same & is_later
        return distances[near], distances[far], stop

    def _distances(self, rows, columns):
        products = self._rows[rows] @ self._rows[columns].T
        products *= -2
        products += self._squares[rows, None]
        products += self._squares[columns]
        return np.maximum(products, 0, out=products)
