"""Squared distances of positive and of negative pairs, block by block."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_gsp.embeddings.labeled_embeddings import (
    moved_to_origin,
    searched_sides,
)
from keras_gsp.ops.arguments import check_count

# Distances of one block of rows with all columns: 64 MB in float32.
BLOCK_NUMBERS = 2**24


class PairDistances:
    """Squared distances of pairs of items, or of queries and gallery items.

    Arguments and errors are those of `verification_scores`. `scale` is a factor
    on the distances of `blocks`.
    """

    def __init__(
        self,
        embeddings: Any,
        labels: Any,
        gallery_embeddings: Any = None,
        gallery_labels: Any = None,
        block_size: int | None = None,
    ) -> None:
        check_count(is_optional=True, block_size=block_size)
        sides = searched_sides(
            embeddings, labels, gallery_embeddings, gallery_labels
        )
        rows, columns, self.scale = moved_to_origin(
            sides.embeddings, sides.gallery
        )
        self._is_own_gallery = sides.is_own_gallery
        # Sorted by class, positive pairs lie in blocks on the diagonal.
        order = np.argsort(sides.codes, kind="stable")
        self._codes, self._rows = sides.codes[order], rows[order]
        order = np.argsort(sides.gallery_codes, kind="stable")
        self._column_codes = sides.gallery_codes[order]
        self._columns = columns[order]
        self._row_squares = np.square(self._rows).sum(axis=1)
        self._column_squares = np.square(self._columns).sum(axis=1)
        self._block_size = block_size or max(
            1, min(1024, BLOCK_NUMBERS // len(columns))
        )
        self.num_positives, self.num_negatives = self._counts()
        for name in ("positives", "negatives"):
            if getattr(self, f"num_{name}") == 0:
                classes = "one class" if name == "positives" else "two classes"
                raise ValueError(
                    f"`labels` must give at least one pair of {classes}. "
                    f"Received: {len(rows)} items and none."
                )

    def blocks(self) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
        """Yields squared distances of positives, and arrays of negatives."""
        for rows in self._row_blocks():
            positives, negatives, columns = self._near(rows)
            far = [slice(columns.stop, None)]
            if not self._is_own_gallery:
                far.append(slice(0, columns.start))
            pieces = [negatives]
            pieces += [self._distances(rows, c).reshape(-1) for c in far]
            yield positives, [piece for piece in pieces if piece.size]

    def positives(self) -> np.ndarray:
        """Returns the squared distances of all positive pairs, flat."""
        return np.concatenate(
            [self._near(rows)[0] for rows in self._row_blocks()]
        )

    def _row_blocks(self):
        for start in range(0, len(self._rows), self._block_size):
            yield slice(start, min(start + self._block_size, len(self._rows)))

    def _near(self, rows):
        """Returns pairs of some rows with the columns of their classes."""
        codes = self._codes[rows]
        first, stop = np.searchsorted(
            self._column_codes, [codes[0], codes[-1] + 1]
        )
        if self._is_own_gallery:
            first = rows.start
        columns = slice(int(first), int(stop))
        distances = self._distances(rows, columns)
        is_positive = codes[:, None] == self._column_codes[columns]
        is_negative = ~is_positive
        if self._is_own_gallery:
            is_later = np.arange(len(codes))[:, None] < np.arange(stop - first)
            is_positive &= is_later
            is_negative &= is_later
        return distances[is_positive], distances[is_negative], columns

    def _distances(self, rows, columns):
        products = self._rows[rows] @ self._columns[columns].T
        products *= -2
        products += self._row_squares[rows, None]
        products += self._column_squares[columns]
        return np.maximum(products, 0, out=products)

    def _counts(self):
        size = 1 + max(self._codes[-1], self._column_codes[-1])
        sizes = np.bincount(self._codes, minlength=size)
        if self._is_own_gallery:
            total = len(self._rows) * (len(self._rows) - 1) // 2
            positives = int(np.sum(sizes * (sizes - 1)) // 2)
        else:
            total = len(self._rows) * len(self._columns)
            others = np.bincount(self._column_codes, minlength=size)
            positives = int(np.sum(sizes * others))
        return positives, total - positives
