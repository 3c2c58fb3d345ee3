"""The positives of each query, and the items its ranking excludes."""

from typing import Any

import numpy as np

from keras_gsp._labels import checked_labels

# Pairs whose labels are compared at once: 32 MB of bits.
BLOCK_NUMBERS = 2**22


class Relevance:
    """Finds the positives of a query and the items its ranking excludes.

    A ranking excludes the query itself, if the queries are their own gallery,
    and positives of the query's group. Labels are class codes, negative for no
    class, or (items, classes) booleans. `num_positives` and `num_removed`,
    (queries,), count positives in the ranking and items left out of it.
    """

    def __init__(
        self,
        labels: np.ndarray,
        gallery_labels: np.ndarray,
        *,
        is_own_gallery: bool,
        groups: np.ndarray | None = None,
        gallery_groups: np.ndarray | None = None,
    ) -> None:
        self.is_own_gallery = is_own_gallery
        self._groups: Any = groups
        self._gallery_groups: Any = gallery_groups
        self._is_multiple = labels.ndim == 2
        self._labels, self._gallery_labels = labels, gallery_labels
        if self._is_multiple:
            self._labels = np.packbits(labels, axis=1)
            self._gallery_labels = np.packbits(gallery_labels, axis=1)
            self._count_pairs()
        else:
            self._count_classes()

    def is_positive(self, queries: np.ndarray, items: np.ndarray) -> np.ndarray:
        """Returns whether items share a label with queries, pair by pair.

        Both are positions, of shapes that broadcast.
        """
        if not self._is_multiple:
            return self._labels[queries] == self._gallery_labels[items]
        found = np.zeros(np.broadcast_shapes(queries.shape, items.shape), bool)
        for column in range(self._labels.shape[1]):
            common = self._labels[queries, column]
            found |= (common & self._gallery_labels[items, column]) != 0
        return found

    def is_removed(self, queries: np.ndarray, items: np.ndarray) -> np.ndarray:
        """Returns whether rankings exclude items; see `is_positive`."""
        found = np.zeros(np.broadcast_shapes(queries.shape, items.shape), bool)
        if self._groups is not None:
            found |= self._groups[queries] == self._gallery_groups[items]
            found &= self.is_positive(queries, items)
        if self.is_own_gallery:
            found |= queries == items
        return found

    def _count_classes(self):
        """Counts by class, without comparing pairs."""
        size = 1 + max(self._labels.max(), self._gallery_labels.max())
        known = self._gallery_labels >= 0
        sizes = np.bincount(self._gallery_labels[known], minlength=size)
        if self._groups is None:
            removed = int(self.is_own_gallery)
            self.num_removed = np.full(len(self._labels), removed)
        else:
            # A class within a group is a class of its own.
            num_groups = 1 + max(self._groups.max(), self._gallery_groups.max())
            keys = self._gallery_labels * num_groups + self._gallery_groups
            names, counts = np.unique(keys[known], return_counts=True)
            own = self._labels * num_groups + self._groups
            places = np.minimum(np.searchsorted(names, own), len(names) - 1)
            is_there = names[places] == own
            self.num_removed = np.where(is_there, counts[places], 0)
        self.num_positives = sizes[self._labels] - self.num_removed

    def _count_pairs(self):
        num_queries, num_items = len(self._labels), len(self._gallery_labels)
        self.num_positives = np.zeros(num_queries, "int64")
        self.num_removed = np.zeros(num_queries, "int64")
        rows = max(1, BLOCK_NUMBERS // num_items)
        items = np.arange(num_items)
        for start in range(0, num_queries, rows):
            queries = np.arange(start, min(start + rows, num_queries))[:, None]
            removed = self.is_removed(queries, items)
            positive = self.is_positive(queries, items) & ~removed
            self.num_removed[queries[:, 0]] = removed.sum(axis=1)
            self.num_positives[queries[:, 0]] = positive.sum(axis=1)


def group_codes(
    groups: Any,
    gallery_groups: Any,
    lengths: tuple[int, int],
    is_own_gallery: bool,
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Numbers the groups of both sides from 0, consistently; or two `None`."""
    if is_own_gallery:
        if gallery_groups is not None:
            raise ValueError(
                "`gallery_groups` must come with a gallery. Received: no "
                "gallery_embeddings."
            )
        gallery_groups = groups
    if groups is None and gallery_groups is None:
        return None, None
    if groups is None or gallery_groups is None:
        missing = "query_groups" if groups is None else "gallery_groups"
        raise ValueError(
            "`query_groups` and `gallery_groups` must be given together. "
            f"Received: no {missing}."
        )
    groups = checked_labels(groups, lengths[0], "query_groups")
    others = checked_labels(gallery_groups, lengths[1], "gallery_groups")
    codes = np.unique(np.concatenate([groups, others]), return_inverse=True)[1]
    return codes[: lengths[0]], codes[lengths[0] :]
