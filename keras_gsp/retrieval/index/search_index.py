"""The protocol of all indexes, and what a search returns."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from keras import ops

from keras_gsp.embeddings.labeled_embeddings import checked_embeddings
from keras_gsp.retrieval.index.gallery import as_list
from keras_gsp.retrieval.index.where import Where
from keras_gsp.retrieval.matching import MatchThreshold
from keras_gsp.retrieval.space import SpaceFingerprint


@dataclasses.dataclass(frozen=True)
class Neighbors:
    """The nearest gallery items of each query, nearest first.

    All arrays are (queries, k), with k at most the number of gallery items.
    Row i holds `counts[i]` neighbors and padding after them: index -1,
    distance infinity, id and label -1 or the empty string.

    Attributes:
        ids: ids of the gallery items.
        labels: their labels.
        distances: Euclidean distances, float32.
        indices: positions in the gallery; all -1 for `MilvusIndex`, which
            has none.
        counts: (queries,), number of neighbors found.
        is_match: whether each is within the index's threshold `match`, and so
            of the query's class; `None` for an index without one.
    """

    ids: np.ndarray
    labels: np.ndarray
    distances: np.ndarray
    indices: np.ndarray
    counts: np.ndarray
    is_match: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.counts)


@runtime_checkable
class SearchIndex(Protocol):
    """Protocol of an index: search, filters, updates.

    `ExactIndex`, `FaissIndex`, `ScannIndex` and `MilvusIndex` have it.
    Returned distances are exact and Euclidean, between the embeddings as
    given; equal distances are ordered by position in the gallery (by id in
    `MilvusIndex`). An engine may miss neighbors: `search_recall` measures how
    many.

    Attributes:
        kind: name of the engine.
        match: `MatchThreshold` saved with the gallery, with which searches
            return `is_match`, or `None`; may be assigned.
        space: `SpaceFingerprint` of the encoder, saved with the gallery, or
            `None` if unknown; may be assigned.
    """

    kind: str
    match: MatchThreshold | None
    space: SpaceFingerprint | None

    @property
    def embedding_size(self) -> int | None:
        """Size of the embeddings, `None` while empty."""

    def __len__(self) -> int:
        """Number of items."""

    def search(
        self,
        queries: Any,
        k: int = 10,
        *,
        exclude_ids: Any = None,
        where: Where | None = None,
    ) -> Neighbors:
        """Finds the nearest items of each query, or most of them.

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
            `Neighbors`, with `counts` below k where fewer were found.

        Raises:
            RuntimeError: an empty index.
            TypeError: `where` compares strings with numbers.
            ValueError: NaN or infinity, a wrong size, k below 1, another
                number of ids than of queries, an unknown column.
        """

    def search_exactly(self, queries: Any, k: int = 10) -> Neighbors:
        """Finds the nearest items of each query by comparing with all."""

    def upsert(
        self,
        embeddings: Any,
        labels: Any,
        ids: Any,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds items and replaces those with the same ids.

        A refused call changes nothing.

        Args:
            embeddings: (items, size), finite.
            labels: (items,), numbers or strings; `None` for empty strings.
            ids: (items,), integers or strings, all different.
            attributes: arrays (items,) of numbers or strings by name, the
                same names in every call. Default `None`: none.

        Raises:
            TypeError: labels, ids or attributes that are neither numbers nor
                strings, or not of the kind that the gallery already has.
            ValueError: embeddings that are empty, not finite, not of rank 2
                or of another size; lengths that differ; a repeated id; other
                attributes than those of the gallery.
        """

    def delete(self, ids: Any) -> int:
        """Removes items and returns their number.

        Args:
            ids: one id or several; unknown ids are ignored.
        """

    def count(self, where: Where | None = None) -> int:
        """Returns the number of items that pass a filter."""

    def ids(self) -> np.ndarray:
        """Returns the ids of all items, (items,)."""

    def items(
        self, ids: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Returns items as `upsert` takes them.

        Args:
            ids: several ids; unknown ones are left out.

        Returns:
            Embeddings (found, size), float32, labels (found,), ids (found,)
            in the order given, and the attributes.
        """


def checked_queries(queries: Any, size: int | None) -> np.ndarray:
    """Returns queries as (queries, size), float32, or raises `ValueError`."""
    if not isinstance(queries, np.ndarray):
        queries = ops.convert_to_numpy(queries)
    queries = queries[None] if queries.ndim == 1 else queries
    queries = checked_embeddings(queries, "queries").astype("float32")
    if queries.shape[1] != size:
        raise ValueError(
            "`queries` must have the size of the gallery's embeddings, "
            f"{size}. Received: shape {queries.shape}."
        )
    return queries


def one_id_each(exclude_ids: Any, count: int) -> list[Any]:
    """Returns the id to exclude for each query, `None` for none."""
    if exclude_ids is None:
        return [None] * count
    ids = as_list(exclude_ids)
    if len(ids) != count:
        raise ValueError(
            "`exclude_ids` must hold one id for each query. "
            f"Received: {len(ids)} ids for {count} queries."
        )
    return ids
