"""What every index can do, whichever engine is behind it."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from keras_gsp.retrieval.index.neighbors import Neighbors
from keras_gsp.retrieval.index.where import Where


@runtime_checkable
class SearchIndex(Protocol):
    """A gallery of embeddings that is searched and kept up to date.

    `ExactIndex`, `ScannIndex` and `MilvusIndex` keep it. Distances are
    Euclidean between the embeddings as given, and exact for what is returned;
    equal distances are ordered by position, or by id where an engine knows no
    positions. An engine may miss neighbours: `certificate` says how many.

    Attributes:
        kind: name of the engine.
        embedding_size: size of the embeddings, `None` while empty.
    """

    kind: str

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
            k: number of neighbours, at least 1.
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
        """Adds items, in place of those of the same id."""

    def delete(self, ids: Any) -> int:
        """Removes items by id and returns how many there were."""

    def count(self, where: Where | None = None) -> int:
        """Number of items that a filter lets through."""
