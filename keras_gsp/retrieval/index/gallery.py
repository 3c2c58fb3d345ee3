"""Embeddings with labels, ids and attributes, as an index keeps them."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from keras_gsp.embeddings.labeled_embeddings import (
    checked_embeddings,
    checked_labels,
    nearby_origin,
)
from keras_gsp.ops.arguments import check_choice
from keras_gsp.retrieval.index.stored_vectors import STORAGES, StoredVectors
from keras_gsp.retrieval.index.where import Where, is_selected

# Rows whose squared lengths are computed at once; they fit a cache.
SQUARE_ROWS = 4096
RESERVED = {"id", "label", "embedding", "embeddings", "distance"}


class Gallery:
    """Embeddings in parts, and columns: ids, labels and attributes.

    Every `add` makes a part, which later ones do not copy. A refused call
    changes nothing.
    """

    def __init__(self, storage: str = "float32") -> None:
        check_choice(*STORAGES, storage=storage)
        self.storage = storage
        self.parts: list[StoredVectors] = []
        # "id", "label" and the attributes, (items,).
        self.columns = {"id": np.zeros(0, "int64"), "label": np.zeros(0, "U1")}
        self.num_added = 0
        # Smallest and largest value of each coordinate so far, (size,).
        self.low = self.high = np.zeros(0, "float32")
        # Positions in the order of their ids, for looking ids up.
        self._by_id = np.zeros(0, "int64")
        self._half_squares: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def ids(self) -> np.ndarray:
        """Ids of the items, (items,), int64 or strings."""
        return self.columns["id"]

    @property
    def labels(self) -> np.ndarray:
        """Labels of the items, (items,), numbers or strings."""
        return self.columns["label"]

    @property
    def attributes(self) -> dict[str, np.ndarray]:
        """Attributes by name, (items,), numbers or strings."""
        names = [name for name in self.columns if name not in RESERVED]
        return {name: self.columns[name] for name in names}

    @property
    def embedding_size(self) -> int | None:
        """Size of the embeddings, `None` before the first `add`."""
        return self.parts[0].values.shape[1] if self.parts else None

    @property
    def embeddings(self) -> np.ndarray:
        """All embeddings as one array, (items, size), float32."""
        rows = [part.rows(slice(None)) for part in self.parts]
        return rows[0] if len(rows) == 1 else np.concatenate(rows)

    @property
    def origin(self) -> np.ndarray:
        """Point that is subtracted before products are taken, (size,)."""
        return nearby_origin(self.low, self.high).astype("float32")

    def selected(self, where: Where | None) -> np.ndarray | None:
        """Returns which items pass a filter, `None` without a filter."""
        return is_selected(where, self.columns)

    def add(
        self,
        rows: np.ndarray,
        columns: dict[str, np.ndarray],
        *,
        replaces: bool,
    ) -> np.ndarray:
        """Adds `checked_items`; returns the positions of those replaced."""
        if self.parts:
            kinds = {name: is_text(old) for name, old in self.columns.items()}
            check_fits(rows, columns, self.embedding_size, kinds)
        old = self._places_of(columns["id"])
        if not replaces:
            _refuse_repeated(columns["id"][old >= 0])
        part = StoredVectors.encoded(rows, self.storage)
        removed = self.remove(old)
        self.append(part, columns, rows.min(axis=0), rows.max(axis=0))
        return removed

    def append(
        self,
        part: StoredVectors,
        columns: dict[str, np.ndarray],
        low: np.ndarray,
        high: np.ndarray,
    ) -> None:
        """Adds checked items, whose coordinates lie in [low, high]."""
        self._half_squares = None
        ids, start = columns["id"], len(self)
        by_id = np.argsort(ids, kind="stable")
        if start:
            places = np.searchsorted(self.ids, ids[by_id], sorter=self._by_id)
            by_id = np.insert(self._by_id, places, by_id + start)
            columns = {
                name: np.concatenate([old, columns[name]])
                for name, old in self.columns.items()
            }
        self._by_id, self.columns = by_id, columns
        if len(self.low):
            low, high = np.minimum(low, self.low), np.maximum(high, self.high)
        self.low, self.high = low, high
        self.parts = [*(one for one in self.parts if len(one)), part]
        self.num_added += len(ids)

    def positions_of(self, ids: list[Any]) -> np.ndarray:
        """Returns the position of each id, -1 for `None` and unknown ids."""
        positions = np.full(len(ids), -1)
        is_given = np.array([one is not None for one in ids], bool)
        if is_given.any() and len(self):
            given = [one for one in ids if one is not None]
            checked = checked_ids(given, len(given))
            _check_kind("ids", checked, is_text(self.ids))
            positions[is_given] = self._places_of(checked)
        return positions

    def blocks(
        self, num_rows: int, selected: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields at most `num_rows` rows from the origin, and positions.

        `selected` (items,) are booleans, the rows to yield; `None`: all.
        """
        origin, start = self.origin, 0
        for part in self.parts:
            inside, count = None, len(part)
            if selected is not None:
                inside = np.flatnonzero(selected[start : start + len(part)])
                count = len(inside)
            for first in range(0, count, num_rows):
                last = min(first + num_rows, count)
                some: Any = slice(first, last)  # copies nothing
                places = np.arange(first, last)
                if inside is not None:
                    some = places = inside[first:last]
                rows = part.rows(some)
                yield rows - origin if origin.any() else rows, start + places
            start += len(part)

    def centered_blocks(
        self, num_rows: int, selected: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yields rows from the origin, half their squares and positions."""
        # Kept until the gallery changes: they take as long as one search.
        if self._half_squares is None:
            self._half_squares = np.empty(len(self), "float32")
            for rows, positions in self.blocks(SQUARE_ROWS):
                squares = np.einsum("rs,rs->r", rows, rows)
                self._half_squares[positions] = squares / 2
        for rows, positions in self.blocks(num_rows, selected):
            yield rows, self._half_squares[positions], positions

    def vectors(self, positions: np.ndarray) -> np.ndarray:
        """Returns embeddings by position, zeros for a negative one."""
        vectors = np.zeros((*positions.shape, self.embedding_size or 0), "f4")
        start = 0
        for part in self.parts:
            inside = (positions >= start) & (positions < start + len(part))
            vectors[inside] = part.rows(positions[inside] - start)
            start += len(part)
        return vectors

    def remove(self, positions: np.ndarray) -> np.ndarray:
        """Removes items; returns their positions, rising, without -1."""
        positions = np.unique(positions[positions >= 0])
        if not len(positions):
            return positions
        self._half_squares = None
        left = np.ones(len(self), bool)
        left[positions] = False
        start, parts = 0, []
        for part in self.parts:
            inside = left[start : start + len(part)]
            start += len(part)
            parts.append(part if inside.all() else part.only(inside))
        # An empty part keeps the size.
        self.parts = [part for part in parts if len(part)] or parts[:1]
        moved = np.cumsum(left) - 1
        self._by_id = moved[self._by_id[left[self._by_id]]]
        self.columns = {
            name: values[left] for name, values in self.columns.items()
        }
        return positions

    def _places_of(self, ids):
        """Positions of ids of the gallery's kind, -1 for unknown ones."""
        if not len(self):
            return np.full(len(ids), -1)
        places = np.searchsorted(self.ids, ids, sorter=self._by_id)
        found = self._by_id[np.minimum(places, len(self) - 1)]
        return np.where(self.ids[found] == ids, found, -1)


def checked_items(
    embeddings: Any, labels: Any, ids: Any, attributes: Any
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Returns embeddings in float32, and ids, labels and attributes by name.

    The errors are those of `SearchIndex.upsert`.
    """
    embeddings = checked_rows(embeddings, "embeddings")
    count = len(embeddings)
    attributes = attributes or {}
    for name in attributes:
        if not str(name).isidentifier() or name in RESERVED:
            raise ValueError(
                "Names of `attributes` must be words that are not one of "
                f"{sorted(RESERVED)}. Received: {name!r}."
            )
    ids = checked_ids(ids, count)
    values, counts = np.unique(ids, return_counts=True)
    _refuse_repeated(values[counts > 1])
    labels = np.zeros(count, "U1") if labels is None else labels
    columns = {"id": ids, "label": checked_labels(labels, count)}
    for name, values in attributes.items():
        columns[name] = checked_labels(values, count, name)
    return embeddings, columns


def checked_rows(rows: Any, name: str) -> np.ndarray:
    """Returns embeddings (items, size) in float32, finite there too."""
    with np.errstate(over="ignore"):
        rows = np.asarray(rows).astype("float32", copy=False)
    return checked_embeddings(rows, name)


def check_fits(
    embeddings: np.ndarray,
    columns: Mapping[str, np.ndarray],
    size: int | None,
    kinds: Mapping[str, bool],
) -> None:
    """Raises unless items fit a gallery.

    `kinds` says by name whether a column of the gallery holds strings.
    """
    if embeddings.shape[1] != size:
        raise ValueError(
            "`embeddings` must have the size of the gallery. Received: "
            f"{embeddings.shape[1]}, the gallery has {size}."
        )
    if set(columns) != set(kinds):
        raise ValueError(
            "`attributes` must be those of the gallery, "
            f"{sorted(set(kinds) - RESERVED)}. "
            f"Received: {sorted(set(columns) - RESERVED)}."
        )
    for name, values in columns.items():
        shown = {"id": "ids", "label": "labels"}.get(name, name)
        _check_kind(shown, values, kinds[name])


def checked_ids(ids: Any, count: int) -> np.ndarray:
    """Returns ids as int64 or strings, (count,)."""
    ids = checked_labels(ids, count, "ids")
    if ids.dtype.kind == "f":
        raise TypeError(
            f"`ids` must be integers or strings. Received: dtype {ids.dtype}."
        )
    return ids.astype("int64") if ids.dtype.kind in "biu" else ids


def is_text(values: np.ndarray) -> bool:
    """Whether a column holds strings."""
    return values.dtype.kind == "U"


def _refuse_repeated(ids):
    if len(ids):
        raise ValueError(
            "`ids` must all be different. Received: "
            f"{len(ids)} of them twice, for example {ids[0].item()!r}."
        )


def _check_kind(name, values, needs_text):
    """Raises `TypeError` for strings among numbers, or the reverse."""
    if is_text(values) != needs_text:
        kinds = ("numbers", "strings") if needs_text else ("strings", "numbers")
        raise TypeError(
            f"`{name}` must be {kinds[1]}, as in the gallery. "
            f"Received: {kinds[0]}."
        )
