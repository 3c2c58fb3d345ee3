"""What all indexes share, and what a search returns."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_gsp.ops.arguments import check_count
from keras_gsp.retrieval.index.gallery import checked_items, checked_rows
from keras_gsp.retrieval.index.where import Where, as_list
from keras_gsp.retrieval.matching import MatchThreshold, checked_match
from keras_gsp.retrieval.space import SpaceFingerprint

# What an index keeps beside its items: names in files, and classes.
KEPT: dict[str, tuple[str, Any]] = {
    "match": ("match_threshold", MatchThreshold),
    "space": ("space", SpaceFingerprint),
}
# Embeddings, labels, ids and attributes.
Items = tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Neighbors:
    """The nearest gallery items of each query, nearest first.

    Arrays are (queries, k), k at most the number of items. Row i holds
    `counts[i]` neighbors and padding after them: index -1, distance infinity,
    id and label -1 or the empty string.

    Attributes:
        ids: ids of the gallery items.
        labels: their labels.
        distances: Euclidean distances, float32.
        indices: positions in the gallery; -1 for `MilvusIndex`.
        counts: (queries,), number of neighbors found.
        is_match: whether each is within the index's threshold `match`; `None`
            without one.
    """

    ids: np.ndarray
    labels: np.ndarray
    distances: np.ndarray
    indices: np.ndarray
    counts: np.ndarray
    is_match: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.counts)


class SearchIndex:
    """Base of all indexes: search, filters, updates.

    Distances are exact and Euclidean, between the embeddings as given; equal
    ones are ordered by position in the gallery (by id in `MilvusIndex`). An
    engine may miss neighbors: `search_recall` measures how many.

    Attributes:
        kind: name of the engine.
    """

    kind: str
    _match: MatchThreshold | None = None
    _space: SpaceFingerprint | None = None

    def __len__(self) -> int:
        return self.count()

    @property
    def embedding_size(self) -> int | None:
        """Size of the embeddings, `None` while the index is empty."""
        raise NotImplementedError

    @property
    def match(self) -> MatchThreshold | None:
        """Threshold of `is_match`, saved with the gallery; may be assigned."""
        return self._match

    @match.setter
    def match(self, match: MatchThreshold | None) -> None:
        self._match = checked_match(match, self.space)
        self._keep("match", match)

    @property
    def space(self) -> SpaceFingerprint | None:
        """The encoder's, saved with the gallery; may be assigned."""
        return self._space

    @space.setter
    def space(self, space: SpaceFingerprint | None) -> None:
        if not isinstance(space, SpaceFingerprint | None):
            raise TypeError(
                "`space` must be what `space_fingerprint(encoder)` returns, or "
                f"None. Received: space={space!r}."
            )
        checked_match(self.match, space)
        self._space = space
        self._keep("space", space)

    def search(
        self,
        queries: Any,
        k: int = 10,
        *,
        exclude_ids: Any = None,
        where: Where | None = None,
        **options: Any,
    ) -> Neighbors:
        """Finds the nearest items of each query, or most of them.

        Args:
            queries: (queries, size), or (size,) for a single one.
            k: number of neighbors, at least 1; at most 16,367 in Milvus.
                Default 10.
            exclude_ids: one id for each query that must not be returned, such
                as the query's own; `None` and unknown ids exclude nothing.
                Default `None`.
            where: filter, a dict from `"label"`, `"id"` or the name of an
                attribute to a value, to a list of values of which one must
                hold, or to a slice (`slice(2, 5)` is `2 <= value < 5`). All
                conditions must hold. Default `None`.
            **options: of the engine: `params` for faiss; `leaves_to_search`
                and `pre_reorder_num_neighbors` for ScaNN; `ef` for Milvus, the
                width of the graph search, by default the larger of 64 and 4 k.

        Returns:
            `Neighbors`, with `counts` below k where fewer were found.

        Raises:
            RuntimeError: an empty index.
            TypeError: `where` compares strings with numbers.
            ValueError: NaN or infinity, a wrong size, k below 1, another
                number of ids than of queries, an unknown column.
        """
        queries = self._checked(queries, k)
        nobody = [None] * len(queries)
        excluded = nobody if exclude_ids is None else as_list(exclude_ids)
        if len(excluded) != len(queries):
            raise ValueError(
                "`exclude_ids` must hold one id for each query. Received: "
                f"{len(excluded)} ids for {len(queries)} queries."
            )
        return self._found(queries, int(k), excluded, where, **options)

    def search_exactly(self, queries: Any, k: int = 10) -> Neighbors:
        """Finds the nearest items of each query by comparing with all."""
        return self._found_exactly(self._checked(queries, k), int(k))

    def upsert(
        self,
        embeddings: Any,
        labels: Any,
        ids: Any,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds items and replaces those with the same ids.

        A refused call changes nothing; an interrupted one may be repeated.

        Args:
            embeddings: (items, size), finite.
            labels: (items,), numbers or strings; `None` for empty strings.
            ids: (items,), integers or strings, all different.
            attributes: arrays (items,) of numbers or strings by name, the
                same names in every call. Default `None`: none.

        Raises:
            TypeError: labels, ids or attributes that are neither numbers nor
                strings, or not of the gallery's kind.
            ValueError: embeddings that are empty, not finite, not of rank 2
                or of another size; lengths that differ; a repeated id; other
                attributes than those of the gallery.
        """
        self._put(*checked_items(embeddings, labels, ids, attributes))

    def delete(self, ids: Any) -> int:
        """Removes one id or several, unknown ones ignored; their number."""
        raise NotImplementedError

    def count(self, where: Where | None = None) -> int:
        """Returns the number of items that pass a filter."""
        raise NotImplementedError

    def ids(self) -> np.ndarray:
        """Returns the ids of all items, (items,)."""
        raise NotImplementedError

    def items(self, ids: Any) -> Items:
        """Returns items as `upsert` takes them, in the order of their ids.

        Embeddings (found, size), float32, labels (found,), ids (found,), and
        attributes; unknown ids are left out.
        """
        raise NotImplementedError

    def _found(
        self,
        queries: np.ndarray,
        k: int,
        excluded: list[Any],
        where: Where | None,
    ) -> Neighbors:
        """Searches with checked arguments, one excluded id for each query."""
        raise NotImplementedError

    def _found_exactly(self, queries: np.ndarray, k: int) -> Neighbors:
        raise NotImplementedError

    def _put(self, rows: np.ndarray, columns: dict[str, np.ndarray]) -> None:
        raise NotImplementedError

    def _keep(self, name: str, value: Any) -> None:
        """Called when `match` or `space` were assigned."""

    def _check_filled(self) -> None:
        if not len(self):
            raise RuntimeError(
                "The index must hold at least one item. Received: an empty "
                "gallery; call `upsert` first."
            )

    def _checked(self, queries, k):
        self._check_filled()
        check_count(k=k)
        queries = checked_rows(np.atleast_2d(queries), "queries")
        if queries.shape[1] != self.embedding_size:
            raise ValueError(
                "`queries` must have the size of the gallery's embeddings, "
                f"{self.embedding_size}. Received: shape {queries.shape}."
            )
        return queries

    def _neighbors(self, distances, ids, labels, indices=None):
        """`Neighbors` of arrays (queries, k); pads where nothing was found."""
        is_found = np.isfinite(distances) if indices is None else indices >= 0
        distances = np.where(is_found, distances, np.inf).astype("float32")
        match = self.match
        return Neighbors(
            ids=np.where(is_found, ids, _padding(ids)),
            labels=np.where(is_found, labels, _padding(labels)),
            distances=distances,
            indices=np.full(ids.shape, -1) if indices is None else indices,
            counts=is_found.sum(axis=1),
            is_match=None if match is None else match.is_match(distances),
        )


def nearest_of(parts: list[Any], k: int) -> list[np.ndarray]:
    """Returns the k nearest of several answers, the earlier of equals.

    Each is a tuple of arrays (queries, any), distances first.
    """
    both = [np.concatenate(part, axis=1) for part in zip(*parts, strict=True)]
    order = np.argsort(both[0], axis=1, kind="stable")[:, :k]
    return [np.take_along_axis(part, order, axis=1) for part in both]


def _padding(values):
    """What stands for no id or label: -1 or the empty string."""
    return np.array("" if values.dtype.kind == "U" else -1, values.dtype)


def blocks_of(ids: Any, size: int = 4096) -> list[Any]:
    """Cuts ids into blocks of that many, the last one shorter."""
    return [ids[start : start + size] for start in range(0, len(ids), size)]
