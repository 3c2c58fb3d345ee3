"""Old items and new items searched side by side, as one index."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from keras_gsp.ops.arguments import check_count
from keras_gsp.retrieval.index.gallery import as_list
from keras_gsp.retrieval.index.search_index import (
    Neighbors,
    SearchIndex,
    checked_queries,
)
from keras_gsp.retrieval.index.where import Where, is_selected
from keras_gsp.retrieval.matching import MatchThreshold
from keras_gsp.retrieval.space import SpaceFingerprint

# Neighbors that the old index is asked for at most; a limit of Milvus.
MOST_ASKED = 16_000


@dataclasses.dataclass(frozen=True)
class Sides:
    """What leads from one space to the other.

    Args:
        to_old: map of new embeddings into the old space.
        old_line: a and b of P(same class) = 1 / (1 + exp(-(a + b d))), with d
            the distance of a mapped query to an old item.
        new_line: the same in the new space.
        new_size: size of the new embeddings.
    """

    to_old: Callable[[np.ndarray], np.ndarray]
    old_line: tuple[float, float]
    new_line: tuple[float, float]
    new_size: int

    def as_new(self, distances: np.ndarray) -> np.ndarray:
        """Returns the distances of equal chance in the new space."""
        (a, b), (c, d) = self.old_line, self.new_line
        if b >= 0 or d >= 0:  # Distances tell nothing about classes.
            return distances
        return np.maximum((a - c + b * distances) / d, 0)


class UpgradedIndex:
    """Searches items of two embedding spaces with queries of the new one.

    Queries are mapped into the old space to search the old index. An item
    that the new index has is not searched in the old one. Distances to old
    items become those of equal chance in the new space. It follows
    `SearchIndex`; filters and limits are those of the two indexes.

    Args:
        old: index of the old space.
        new: index of the new space, perhaps empty.
        sides: map and calibration.
    """

    kind = "upgraded"

    def __init__(
        self, old: SearchIndex, new: SearchIndex, sides: Sides
    ) -> None:
        self.old, self.new, self.sides = old, new, sides
        # Ids that both have.
        self._moved = np.intersect1d(old.ids(), new.ids())

    def __len__(self) -> int:
        return len(self.old) + len(self.new) - len(self._moved)

    @property
    def embedding_size(self) -> int | None:
        """Size of the new embeddings."""
        return self.sides.new_size

    @property
    def match(self) -> MatchThreshold | None:
        """Largest distance of a match in the new space, or `None`."""
        return self.new.match

    @match.setter
    def match(self, match: MatchThreshold | None) -> None:
        self.new.match = match

    @property
    def space(self) -> SpaceFingerprint | None:
        """Fingerprint of the new encoder."""
        return self.new.space

    @space.setter
    def space(self, space: SpaceFingerprint | None) -> None:
        self.new.space = space

    def search(
        self,
        queries: Any,
        k: int = 10,
        *,
        exclude_ids: Any = None,
        where: Where | None = None,
    ) -> Neighbors:
        """Finds near items of both spaces; see `SearchIndex.search`."""
        options = {"exclude_ids": exclude_ids, "where": where}
        return self._searched("search", queries, k, options)

    def search_exactly(self, queries: Any, k: int = 10) -> Neighbors:
        """Finds the nearest items by comparing with all of both indexes."""
        return self._searched("search_exactly", queries, k, {})

    def upsert(
        self,
        embeddings: Any,
        labels: Any,
        ids: Any,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds items of the new space; they replace old ones of their ids."""
        self.new.upsert(embeddings, labels, ids, attributes)
        if len(moved := self.old.items(as_list(ids))[2]):
            self._moved = np.union1d(self._moved, moved)

    def delete(self, ids: Any) -> int:
        """Removes items from both indexes and returns their number."""
        ids = as_list(ids)
        removed = self.old.delete(ids) + self.new.delete(ids)
        num_both = len(np.intersect1d(self._moved, ids))
        self._moved = np.setdiff1d(self._moved, ids)
        return removed - num_both

    def count(self, where: Where | None = None) -> int:
        """Returns the number of items that pass a filter."""
        both = len(self._moved)
        if where and both:
            _, labels, ids, attributes = self.old.items(self._moved)
            columns = {"label": labels, "id": ids} | attributes
            selected = is_selected(where, columns)
            both = 0 if selected is None else int(selected.sum())
        new = self.new.count(where) if len(self.new) else 0
        return self.old.count(where) + new - both

    def ids(self) -> np.ndarray:
        """Returns the ids of all items."""
        new = self.new.ids()
        return np.union1d(self.old.ids(), new) if len(new) else self.old.ids()

    def items(
        self, ids: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Returns items of the new space alone; see `SearchIndex.items`."""
        return self.new.items(ids)

    def left(self) -> np.ndarray:
        """Returns the ids of items that only the old space has."""
        return np.setdiff1d(self.old.ids(), self._moved)

    def _searched(self, method, queries, k, options):
        check_count(k=k)
        queries = checked_queries(queries, self.embedding_size)
        parts = [self._of_old(method, self.sides.to_old(queries), k, options)]
        if len(self.new):
            found = getattr(self.new, method)(queries, k, **options)
            parts.insert(0, (found.distances, found.ids, found.labels))
        both = [
            np.concatenate(part, axis=1) for part in zip(*parts, strict=True)
        ]
        order = np.argsort(both[0], axis=1, kind="stable")
        order = order[:, : min(k, len(self))]
        distances, ids, labels = (
            np.take_along_axis(part, order, axis=1) for part in both
        )
        match = self.match
        return Neighbors(
            ids=ids,
            labels=labels,
            distances=distances,
            indices=np.full(ids.shape, -1),
            counts=np.isfinite(distances).sum(axis=1),
            is_match=None if match is None else match.is_match(distances),
        )

    def _of_old(self, method, queries, k, options):
        """Distances, ids and labels of items that only the old index has."""
        most = min(len(self.old), MOST_ASKED)
        # Moved items take places among the neighbors.
        asked = min(most, k + 2 * k * len(self._moved) // len(self.old))
        while True:
            found = getattr(self.old, method)(queries, asked, **options)
            is_left = np.isfinite(found.distances)
            is_left &= ~np.isin(found.ids, self._moved)
            # One less than asked for: an item was excluded.
            may_be_more = found.counts >= asked - 1
            is_done = (is_left.sum(axis=1) >= k) | ~may_be_more
            if asked == most or is_done.all():
                break
            asked = min(most, 4 * asked)
        order = np.argsort(~is_left, axis=1, kind="stable")[:, :k]
        distances = np.where(
            is_left, self.sides.as_new(found.distances), np.inf
        )
        ids, labels = (
            np.where(
                is_left, part, np.array("" if part.dtype.kind == "U" else -1)
            )
            for part in (found.ids, found.labels)
        )
        parts = distances.astype("float32"), ids, labels
        return [np.take_along_axis(part, order, axis=1) for part in parts]
