"""Embeddings with labels, ids and attributes, as an index keeps them."""

import dataclasses
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from keras_gsp._checks import check_choice
from keras_gsp._embeddings import nearby_origin
from keras_gsp.ops.neighbors import NearestItems
from keras_gsp.retrieval.index.columns import (
    Rows,
    Texts,
    blocks_of,
    fitted,
    ids_of_kind,
    refuse_repeated,
)

# Rows of a part to which no more are added; their copies stay small.
FULL_PART = 2**16
# Rows whose squared lengths are computed at once; they fit a cache.
SQUARE_ROWS = 4096


class StoredVectors:
    """Rows of one part of a gallery, in memory or on disk; never changed.

    Rows (rows, size) may be memory-mapped and are then never copied as a
    whole; `places` are those that were not deleted, rising, `None` for all.
    """

    def __init__(self, rows: Rows, places: np.ndarray | None = None) -> None:
        self._rows, self.places = rows, places

    @property
    def values(self) -> np.ndarray:
        """All rows as stored, also deleted ones."""
        return self._rows.values

    def __len__(self) -> int:
        return len(self.values if self.places is None else self.places)

    def stored(self, selection: Any) -> np.ndarray:
        """Returns some rows as stored, not counting deleted ones."""
        if self.places is not None:
            selection = self.places[selection]
        return self.values[selection]

    def rows(self, selection: Any) -> np.ndarray:
        """Returns some rows, (selected, size), float32."""
        rows = np.asarray(self.stored(selection))
        return rows.astype("float32", copy=False)

    def only(self, is_left: np.ndarray) -> "StoredVectors":
        """Returns the rows of a mask; the others stay while they are few."""
        left = np.flatnonzero(is_left)
        places = left if self.places is None else self.places[left]
        is_mapped = isinstance(self.values, np.memmap)
        if not is_mapped and 2 * len(places) < len(self.values):
            return StoredVectors(Rows(self.values[places]))
        return StoredVectors(self._rows, places)

    def appended(self, rows: np.ndarray) -> "StoredVectors | None":
        """Returns these rows and more, `None` if this part is full."""
        start = len(self.values)
        if isinstance(self.values, np.memmap) or start >= FULL_PART:
            return None
        places = self.places
        if places is not None:
            added = np.arange(start, start + len(rows))
            places = np.concatenate([places, added])
        return StoredVectors(self._rows.appended(rows), places)


@dataclasses.dataclass(frozen=True, eq=False)
class Gallery:
    """Embeddings in parts, and columns: ids, labels and attributes.

    A change returns another gallery, which shares the parts that stay.

    Attributes:
        stored: "id", "label" and the attributes, which may grow.
        low: smallest value of each coordinate so far, (size,); high: largest.
        by_id: for looking ids up, the order of the ids (of strings, of their
            hashes) of consecutive runs of items; a run is more than twice as
            long as the next one. `None`: sorted when it is needed.
    """

    storage: str
    parts: tuple[StoredVectors, ...]
    stored: dict[str, Rows | Texts]
    low: np.ndarray
    high: np.ndarray
    num_added: int
    by_id: tuple[np.ndarray, ...] | None = None

    def __post_init__(self) -> None:
        check_choice("float32", "float16", storage=self.storage)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def columns(self) -> dict[str, Any]:
        """The id, the label and attributes, (items,): arrays or `Texts`."""
        return {name: rows.values for name, rows in self.stored.items()}

    @property
    def ids(self) -> Any:
        """Ids of the items, (items,), integers or `Texts`."""
        return self.stored["id"].values

    @property
    def labels(self) -> Any:
        """Labels of the items, (items,), numbers or `Texts`."""
        return self.stored["label"].values

    @property
    def dtypes(self) -> dict[str, np.dtype]:
        """The dtype of each column, "U" of strings."""
        return {
            name: np.dtype("U" if values.dtype == object else values.dtype)
            for name, values in self.columns.items()
        }

    @property
    def embedding_size(self) -> int | None:
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

    def with_items(
        self,
        rows: np.ndarray,
        columns: dict[str, np.ndarray],
        *,
        replaces: bool,
    ) -> tuple["Gallery", np.ndarray]:
        """Adds `checked_items`; also returns the positions of those replaced.

        The rows are kept as they are; nobody else may change them.
        """
        if self.parts:
            size, dtypes = self.embedding_size, self.dtypes
            columns = fitted(rows, columns, size, dtypes)
        old = self._places_of(columns["id"])
        if not replaces:
            refuse_repeated(columns["id"][old >= 0].tolist())
        with np.errstate(over="ignore"):
            stored = rows.astype(self.storage, copy=False)
        if self.storage == "float16" and not np.isfinite(stored).all():
            raise ValueError(
                '`embeddings` must be within 65504 for storage="float16". '
                f"Received: {np.abs(rows).max():g}."
            )
        left, removed = self.without(old)
        low, high = rows.min(axis=0), rows.max(axis=0)
        return left.appended(stored, columns, low, high), removed

    def appended(
        self,
        rows: np.ndarray,
        columns: dict[str, np.ndarray],
        low: np.ndarray,
        high: np.ndarray,
    ) -> "Gallery":
        """Adds checked items, whose coordinates lie in [low, high]."""
        start = len(self)
        stored: dict[str, Rows | Texts]
        if start:
            stored = {
                name: old.appended(columns[name])
                for name, old in self.stored.items()
            }
        else:
            stored = {name: stored_column(one) for name, one in columns.items()}
        runs, first = list(self._runs), start
        while runs and len(runs[-1]) <= 2 * (start + len(rows) - first):
            first -= len(runs.pop())
        order = np.argsort(keys_of(stored["id"])[first:], kind="stable")
        if len(self.low):
            low, high = np.minimum(low, self.low), np.maximum(high, self.high)
        parts = [part for part in self.parts if len(part)]
        grown = parts[-1].appended(rows) if parts else None
        if grown is not None:
            parts[-1] = grown
        else:
            parts.append(StoredVectors(Rows(rows)))
        num_added = self.num_added + len(rows)
        return Gallery(
            *(self.storage, tuple(parts), stored, low, high, num_added),
            by_id=(*runs, order),
        )

    def without(self, positions: np.ndarray) -> tuple["Gallery", np.ndarray]:
        """Removes items; also returns their positions, rising, without -1."""
        positions = np.unique(positions[positions >= 0])
        if not len(positions):
            return self, positions
        left = np.ones(len(self), bool)
        left[positions] = False
        start, parts = 0, []
        for part in self.parts:
            inside = left[start : start + len(part)]
            start += len(part)
            parts.append(part if inside.all() else part.only(inside))
        stored = {name: one.only(left) for name, one in self.stored.items()}
        # An empty part keeps the size.
        kept = [part for part in parts if len(part)] or parts[:1]
        starts = np.cumsum([0, *map(len, self._runs)])
        runs = []
        for start, run in zip(starts, self._runs, strict=False):
            inside = left[start : start + len(run)]
            runs.append((np.cumsum(inside) - 1)[run[inside[run]]])
        changed = dataclasses.replace(
            self,
            parts=tuple(kept),
            stored=stored,
            by_id=tuple(filter(len, runs)),
        )
        return changed, positions

    def positions_of(self, ids: list[Any]) -> np.ndarray:
        """Returns the position of each id, -1 for `None` and unknown ids."""
        positions = np.full(len(ids), -1)
        places = [i for i, one in enumerate(ids) if one is not None]
        if places and len(self):
            given = ids_of_kind([ids[i] for i in places], self.ids.dtype)
            positions[places] = self._places_of(given)
        return positions

    def blocks(
        self, num_rows: int, selected: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields at most `num_rows` rows from the origin, and positions.

        `selected` (items,) are booleans, the rows to yield; `None`: all.
        """
        origin, start = self.origin, 0
        for part in self.parts:
            inside: Any = range(len(part))
            if selected is not None:
                inside = np.flatnonzero(selected[start : start + len(part)])
            for places in blocks_of(inside, num_rows):
                some: Any = places
                if selected is None:  # copies nothing
                    some = slice(places.start, places.stop)
                    places = np.arange(places.start, places.stop)
                rows = part.rows(some)
                yield rows - origin if origin.any() else rows, start + places
            start += len(part)

    @cached_property
    def half_squares(self) -> np.ndarray:
        """Half the squared lengths of the rows from the origin, (items,)."""
        halves = np.empty(len(self), "float32")
        for rows, positions in self.blocks(SQUARE_ROWS):
            halves[positions] = np.einsum("rs,rs->r", rows, rows) / 2
        return halves

    @cached_property
    def nearest(self) -> NearestItems:
        """The exact search of all items; keeps them on an accelerator."""
        return NearestItems(self.centered_blocks, self.vectors, self.origin)

    def centered_blocks(
        self, num_rows: int, selected: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yields rows from the origin, half their squares and positions."""
        halves = self.half_squares  # they take as long as one search
        for rows, positions in self.blocks(num_rows, selected):
            yield rows, halves[positions], positions

    def vectors(self, positions: np.ndarray) -> np.ndarray:
        """Returns embeddings by position, zeros for a negative one."""
        vectors = np.zeros((*positions.shape, self.embedding_size or 0), "f4")
        start = 0
        for part in self.parts:
            inside = (positions >= start) & (positions < start + len(part))
            vectors[inside] = part.rows(positions[inside] - start)
            start += len(part)
        return vectors

    @cached_property
    def _runs(self):
        if self.by_id is not None or not len(self):
            return self.by_id or ()
        return (np.argsort(keys_of(self.stored["id"]), kind="stable"),)

    def _places_of(self, ids):
        """Positions of ids of the gallery's kind, -1 for unknown ones."""
        if not len(self):
            return np.full(len(ids), -1)
        keys, wanted = keys_of(self.stored["id"]), keys_of(stored_column(ids))
        positions, start = np.full(len(ids), -1), 0
        for run in self._runs:
            here = keys[start : start + len(run)]
            places = np.searchsorted(here, wanted, sorter=run)
            is_left = places < len(run)
            while is_left.any():
                # Different strings that share a hash stand side by side.
                left = np.flatnonzero(is_left)
                rows = run[places[left]]
                is_left[left] = here[rows] == wanted[left]
                is_row = is_left[left] & (self.ids[start + rows] == ids[left])
                positions[left[is_row]] = start + rows[is_row]
                is_left[left[is_row]] = False
                places += 1
                is_left &= places < len(run)
            start += len(run)
        return positions


def empty_gallery(storage: str) -> Gallery:
    """A gallery of no items."""
    nothing = np.zeros(0, "int64")
    stored: dict[str, Rows | Texts]
    stored = {"id": Rows(nothing), "label": Texts.of([])}
    return Gallery(storage, (), stored, nothing, nothing, 0)


def stored_column(values: np.ndarray) -> Rows | Texts:
    """Returns a checked column as a gallery keeps it."""
    return Texts.of(values) if values.dtype == object else Rows(values)


def keys_of(column: Rows | Texts) -> np.ndarray:
    """Returns integers by which ids are looked up, (items,)."""
    return column.hashes if isinstance(column, Texts) else column.values
