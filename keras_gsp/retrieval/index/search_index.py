"""What all indexes share: search, filters, groups, updates."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from keras_gsp._checks import check_count, check_interval
from keras_gsp.retrieval.augmentation import NeighborAugmentation
from keras_gsp.retrieval.index.augmented_search import AugmentedSearch
from keras_gsp.retrieval.index.columns import (
    as_numpy,
    as_rows,
    checked_items,
    checked_rows,
    plain_ids,
)
from keras_gsp.retrieval.index.neighbors import (
    OVERSAMPLING,
    Neighbors,
    diverse,
    moved_query,
    nearest_groups,
    nearest_to_any,
    no_farther,
    padding_of,
    without,
)
from keras_gsp.retrieval.index.where import Where, as_list, check_columns
from keras_gsp.retrieval.matching import MatchThreshold, checked_match
from keras_gsp.retrieval.space import SpaceFingerprint

# What an index keeps beside its items: names in files, and classes.
KEPT: dict[str, tuple[str, Any]] = {
    "match": ("match_threshold", MatchThreshold),
    "space": ("space", SpaceFingerprint),
}
# Embeddings, labels, ids and attributes.
Items = tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]


class SearchIndex:
    """Base of all indexes: search, filters, updates.

    Distances are exact and Euclidean, between the embeddings as given; equal
    ones are ordered by position in the gallery (by id in `MilvusIndex`). An
    engine may miss neighbors: `search_recall` measures how many.

    Threads may search while one changes the index: a search answers as before
    a change or as after it. Arrays that are given or returned are copied.

    Attributes:
        kind: name of the engine.
        max_neighbors: most items that one search returns; `None`: all.
    """

    kind: str
    max_neighbors: int | None = None
    _match: MatchThreshold | None = None
    _space: SpaceFingerprint | None = None
    _augmented: AugmentedSearch | None = None
    # Searches with checked arguments: queries, k, an excluded id for each,
    # where, and a column of which `groups` are the values, or `None`.
    _found: Callable[..., Neighbors]
    # Adds what `checked_items` returns.
    _put: Callable[[np.ndarray, dict[str, np.ndarray]], None]
    # For augmentation: makes the index of a round, and looks up the positions
    # and embeddings of neighbors.
    _round_index: Callable[[int], "SearchIndex"]
    _located: Callable[[Neighbors], tuple[np.ndarray, np.ndarray]]

    def __len__(self) -> int:
        return self.count()

    @property
    def embedding_size(self) -> int | None:
        """Size of the embeddings, `None` while the index is empty."""
        raise NotImplementedError

    @property
    def match(self) -> MatchThreshold | None:
        """Threshold of `is_match`, saved with the gallery; may be assigned.

        One that was calibrated with a gallery follows the number of items.
        """
        match = self._match
        if match is None or match.gallery_size is None or not len(self):
            return match
        return match.for_gallery(len(self))

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
        checked_match(self.match, space)
        self._space = space
        self._keep("space", space)

    @property
    def augmentation(self) -> NeighborAugmentation | None:
        """What decides the order of neighbors; may be assigned.

        Single changes augment the items that they touch and their neighbors
        again, `refresh` all.
        """
        search = self._augmented
        return None if search is None else search.augmentation

    @augmentation.setter
    def augmentation(self, augmentation: NeighborAugmentation | None) -> None:
        if not isinstance(augmentation, NeighborAugmentation | None):
            raise TypeError(
                "`augmentation` must be a `NeighborAugmentation` or None. "
                f"Received: augmentation={augmentation!r}."
            )
        if self._augmented is not None:
            for index in self._augmented.rounds:
                index._drop()
        search = None
        if augmentation is not None and augmentation.num_neighbors:
            search = AugmentedSearch(augmentation, self._round_index)
            search.refresh(self)
        self._augmented = search
        self._keep("augmentation", self.augmentation)

    def refresh(self) -> None:
        """Augments all items again, after many single changes."""
        if self._augmented is not None:
            self._augmented.refresh(self)

    def search(
        self,
        queries: Any = None,
        k: int = 10,
        *,
        exclude_ids: Any = None,
        where: Where | None = None,
        group_by: str | None = None,
        within: float | None = None,
        diversity: float = 0.0,
        like: Any = None,
        unlike: Any = None,
    ) -> Neighbors:
        """Finds the nearest items of each query, or most of them.

        Args:
            queries: (queries, size), or (size,) for a single one. Several
                photographs of each thing are (things, photographs, size): an
                item is as near as the nearest of them. For their mean instead,
                give `queries.mean(axis=1)`. May be `None` beside `like`.
            k: number of neighbors, at least 1; at most 16,367 in Milvus.
            exclude_ids: one id for each query that must not be returned, such
                as the query's own; `None` and unknown ids exclude nothing.
            where: filter, a dict from `"label"`, `"id"` or the name of an
                attribute to a value, to a list of values of which one must
                hold, or to a slice (`slice(2, 5)` is `2 <= value < 5`). All
                conditions must hold.
            group_by: `"label"` or the name of an attribute, such as a product:
                finds k different groups, the nearest item of each, and
                `group_counts`. Asks for four times k items, and then for more
                until there are k groups, or no more items (16,367 in Milvus).
            within: largest distance of a neighbor; `counts` may be 0.
            diversity: weight of maximal marginal relevance, in [0, 1]: of the
                10 k nearest items, the one comes next that has the largest
                diversity * (distance to those before) -
                (1 - diversity) * (distance to the query). 0: the nearest
                first; above 0.5 copies of the query itself come last.
            like: ids of items, or embeddings (items, size), to find more of.
                Their mean, with a single query, is searched for; items with
                these ids are not returned.
            unlike: as `like`, items to find fewer of: the mean moves away
                from theirs by twice their distance.

        Raises:
            RuntimeError: an empty index.
            TypeError: `where` compares strings with numbers.
            ValueError: NaN or infinity, a wrong size, k below 1, another
                number of ids than of queries, an unknown column or id.
        """
        check_count(k=k)
        check_interval("[0, 1]", diversity=diversity)
        if within is not None:
            check_interval("[0, inf)", within=within)
        left_out: list[Any] = []
        if queries is None or like is not None or unlike is not None:
            queries, left_out = self._moved_query(queries, like, unlike)
        queries, photographs = self._checked(queries)
        num_things = len(queries) // photographs
        excluded = [None] * num_things
        if exclude_ids is not None:
            excluded = as_list(exclude_ids, "exclude_ids")
            excluded = plain_ids(excluded, self._dtypes["id"])
        if len(excluded) != num_things:
            raise ValueError(
                "`exclude_ids` must hold one id for each query. Received: "
                f"{len(excluded)} ids for {num_things} queries."
            )
        if group_by is not None:
            check_columns([group_by], self._dtypes, "group_by")
        most = min(len(self), self.max_neighbors or len(self))

        def nearest(things, asked):
            ids, more = [excluded[i] for i in things], asked
            if left_out:
                more = min(asked + len(left_out), most)
            near = self._nearest(queries[things], more, ids, where, group_by)
            return without(near, left_out, asked) if left_out else near

        queries = queries.reshape(num_things, photographs, -1)
        things, wanted = np.arange(num_things), int(k)
        if diversity:
            wanted = max(wanted, min(OVERSAMPLING * wanted, most))
        if group_by is None:
            near = nearest(things, wanted)
        else:
            near = nearest_groups(nearest, things, wanted, most)
        if within is not None:
            near = no_farther(near, within)
        if diversity:
            near = diverse(near, self._searched.items, int(k), diversity)
        return near

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
                same names in every call.

        Raises:
            TypeError: labels, ids or attributes of another type than these,
                or than the gallery's.
            ValueError: values, shapes or names other than these, or than the
                gallery's; a repeated id.
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

    @property
    def _dtypes(self) -> Mapping[str, np.dtype]:
        """The dtype of each column: id, label and attributes."""
        raise NotImplementedError

    def _nearest(self, queries, k, excluded, where, column=None):
        """Neighbors of queries (things, photographs, size), an id left out."""
        if self._augmented is not None:
            search = self._augmented.search
            return search(self, queries, k, excluded, where, column)
        _, photographs, size = queries.shape
        ids = [
            excluded_id for excluded_id in excluded for _ in range(photographs)
        ]
        rows = queries.reshape(-1, size)
        near = self._found(rows, k, ids, where, column)
        return near if photographs < 2 else nearest_to_any(near, photographs, k)

    @property
    def _searched(self) -> "SearchIndex":
        """The index whose items are found."""
        return self

    def _drop(self) -> None:
        """Forgets an index of a round where it is kept."""

    def _changing(self, ids: Any) -> AbstractContextManager:
        """Around a change of some items: their augmentation follows."""
        if self._augmented is None:
            return nullcontext()
        return self._augmented.changing(self, ids)

    def _keep(self, name: str, value: Any) -> None:
        """Called when `match` or `space` were assigned."""

    def _check_filled(self) -> None:
        if not len(self):
            raise RuntimeError(
                "The index must hold at least one item. Received: an empty "
                "gallery; call `upsert` first."
            )

    def _moved_query(self, queries, like, unlike):
        """The query of items to be like and unlike, and ids to leave out."""
        self._check_filled()
        liked, like_ids = self._examples(like, "like")
        unliked, unlike_ids = self._examples(unlike, "unlike")
        if queries is not None:
            rows, photographs = self._checked(queries)
            if photographs > 1 or len(rows) > 1:
                raise ValueError(
                    "`queries` must be a single one beside `like` and "
                    f"`unlike`. Received: shape {np.shape(queries)}."
                )
            liked = np.concatenate([rows, liked])
        if not len(liked):
            raise ValueError(
                "`like` must hold an example, or `queries` be given. "
                "Received: none."
            )
        return moved_query(liked, unliked), like_ids + unlike_ids

    def _examples(self, examples, name):
        """Embeddings of examples, (examples, size), and their ids."""
        if examples is None:
            return np.zeros((0, self.embedding_size or 0), "float32"), []
        array = np.asarray(examples)
        if array.dtype.kind not in "OUiu":
            return self._checked(array)[0], []
        ids = plain_ids(as_list(examples, name), self._dtypes["id"])
        rows, _, known, _ = self.items(ids)
        if unknown := sorted(set(ids) - set(known.tolist()), key=str):
            raise ValueError(
                f"`{name}` must hold ids of the gallery. "
                f"Received: {unknown[0]!r}, which is unknown."
            )
        return rows, ids

    def _checked(self, queries):
        """Rows of all queries, and the number of photographs of each."""
        self._check_filled()
        queries = np.atleast_2d(as_rows(queries, "queries"))
        shape = queries.shape
        if len(shape) == 3:
            queries = queries.reshape(-1, shape[2])
        queries = checked_rows(queries, "queries")
        if shape[-1] != self.embedding_size:
            raise ValueError(
                "`queries` must have the size of the gallery's embeddings, "
                f"{self.embedding_size}. Received: shape {shape}."
            )
        return queries, shape[1] if len(shape) == 3 else 1

    def _neighbors(self, distances, ids, labels, indices=None, groups=None):
        """`Neighbors` of arrays (queries, k); pads where nothing was found."""
        is_found = np.isfinite(distances) if indices is None else indices >= 0
        distances = np.where(is_found, distances, np.inf).astype("float32")
        match = self.match

        def padded(values):
            return as_numpy(np.where(is_found, values, padding_of(values)))

        return Neighbors(
            ids=padded(ids),
            labels=padded(labels),
            distances=distances,
            indices=np.full(ids.shape, -1) if indices is None else indices,
            counts=is_found.sum(axis=1),
            is_match=None if match is None else match.is_match(distances),
            groups=None if groups is None else padded(groups),
        )
