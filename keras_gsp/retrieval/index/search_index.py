"""The protocol of all indexes, and the base of indexes in memory."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from keras import ops

from keras_gsp.embeddings.labeled_embeddings import checked_embeddings
from keras_gsp.retrieval.index.gallery import Gallery, as_list
from keras_gsp.retrieval.index.where import Where
from keras_gsp.retrieval.matching import MatchThreshold, checked_match


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
        embedding_size: size of the embeddings, `None` while empty.
        match: `MatchThreshold` saved with the gallery, with which searches
            return `is_match`, or `None`; may be assigned.
    """

    kind: str
    match: MatchThreshold | None

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
        """Finds near items of each query.

        Args:
            queries: (queries, size), or (size,) for a single one.
            k: number of neighbors, at least 1.
            exclude_ids: one id for each query that must not be returned.
            where: which items may be returned, a dict from `"label"`, `"id"`
                or an attribute to a value, a list of values, or a slice.
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
        """Adds items and replaces those with the same ids."""

    def delete(self, ids: Any) -> int:
        """Removes items by id and returns how many there were."""

    def count(self, where: Where | None = None) -> int:
        """Number of items that pass a filter."""


class GalleryIndex:
    """Base of the indexes that keep their items in a `Gallery`.

    A subclass implements `search`, and `_over`, which builds it from a
    gallery.
    """

    gallery: Gallery

    @classmethod
    def from_encoder(
        cls,
        encoder: Any,
        dataset: Any,
        *,
        ids: Any = None,
        batch_size: int = 64,
        attributes: Mapping[str, Any] | None = None,
        storage: str = "float32",
        match: MatchThreshold | None = None,
        **options: Any,
    ) -> Self:
        """Embeds a data set and indexes it.

        Args:
            encoder: Keras model, images to embeddings (or to a dict with
                `"embedding"`).
            dataset: a finite `tf.data.Dataset` or `keras.utils.PyDataset` of
                (images, labels) batches, or a tuple of two arrays.
            ids: one id for each image, in order. Default `None`: positions.
            batch_size: images embedded at once when arrays are given.
            attributes: as for the class.
            storage: as for the class.
            match: as for the class.
            **options: the other keyword arguments of the class.

        Returns:
            The index.
        """
        cls._check_engine()
        gallery = Gallery(storage=storage, match=match)
        gallery.add_encoded(encoder, dataset, ids, batch_size, attributes)
        return cls._over(gallery, **options)

    def __len__(self) -> int:
        return len(self.gallery)

    @property
    def embedding_size(self) -> int | None:
        """Size of the embeddings, `None` while the index is empty."""
        return self.gallery.embedding_size

    @property
    def match(self) -> MatchThreshold | None:
        """Largest distance of a match, or `None`."""
        return self.gallery.match

    @match.setter
    def match(self, match: MatchThreshold | None) -> None:
        self.gallery.match = checked_match(match)

    def count(self, where: Where | None = None) -> int:
        """Returns the number of items that pass a filter.

        Args:
            where: as for `ExactIndex.search`.
        """
        selected = self.gallery.selected(where)
        return len(self) if selected is None else int(selected.sum())

    @classmethod
    def _over(cls, gallery: Gallery, **options: Any) -> Self:
        raise NotImplementedError(f"{cls.__name__} has no `_over`.")

    @classmethod
    def _check_engine(cls) -> None:
        """Raises `ImportError` before a data set is embedded in vain."""


def neighbors_at(
    gallery: Gallery, indices: np.ndarray, distances: np.ndarray
) -> Neighbors:
    """Looks up ids and labels; an index of -1 is no neighbor."""
    is_missing = indices < 0

    def looked_up(values):
        found = values[np.maximum(indices, 0)]
        missing = "" if found.dtype.kind == "U" else -1
        return np.where(is_missing, np.array(missing, found.dtype), found)

    distances = np.where(is_missing, np.inf, distances).astype("float32")
    match = gallery.match
    return Neighbors(
        ids=looked_up(gallery.ids),
        labels=looked_up(gallery.labels),
        distances=distances,
        indices=indices,
        counts=np.sum(~is_missing, axis=1),
        is_match=None if match is None else match.is_match(distances),
    )


def checked_queries(queries: Any, size: int | None) -> np.ndarray:
    """Returns queries as (queries, size), float32.

    Args:
        queries: (queries, size), or (size,) for a single one.
        size: size of the gallery's embeddings.

    Raises:
        ValueError: NaN or infinity, or another size.
    """
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


def check_filled(gallery: Gallery) -> None:
    """Raises `RuntimeError` for an empty index."""
    if not len(gallery):
        raise RuntimeError(
            "The index must hold at least one item. Received: an empty "
            "gallery; call `upsert` first."
        )


def one_id_each(exclude_ids: Any, count: int) -> list[Any]:
    """Returns the id to exclude for each query, `None` for none.

    Raises:
        ValueError: another number of ids than of queries.
    """
    if exclude_ids is None:
        return [None] * count
    ids = as_list(exclude_ids)
    if len(ids) != count:
        raise ValueError(
            "`exclude_ids` must hold one id for each query. "
            f"Received: {len(ids)} ids for {count} queries."
        )
    return ids
