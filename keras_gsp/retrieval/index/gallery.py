"""Embeddings with labels, ids and attributes, as an index keeps them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from keras_gsp.data.preprocessing import Preprocessing
from keras_gsp.embeddings.labeled_batches import (
    LabeledBatches,
    encoded_batches,
)
from keras_gsp.embeddings.labeled_embeddings import (
    checked_embeddings,
    checked_labels,
    nearby_origin,
)
from keras_gsp.retrieval.index.stored_vectors import (
    StoredVectors,
    check_storage,
)
from keras_gsp.retrieval.index.where import Where, is_selected
from keras_gsp.retrieval.matching import MatchThreshold, checked_match

# Rows whose squared lengths are computed at once; they fit a cache.
SQUARE_ROWS = 4096
# Rows that are collected from an encoder, and written, at once.
PART_ROWS = 2**16
RESERVED = {"id", "label", "embedding", "embeddings", "distance"}


class Gallery:
    """Embeddings in parts, each item with a label, an id and attributes.

    Arguments and errors are those of `ExactIndex`. A refused call changes
    nothing.
    """

    def __init__(
        self,
        embeddings: Any = None,
        labels: Any = None,
        ids: Any = None,
        attributes: Mapping[str, Any] | None = None,
        storage: str = "float32",
        match: MatchThreshold | None = None,
    ) -> None:
        check_storage(storage)
        self.storage = storage
        self.match = checked_match(match)
        # How the images were cut, where `from_encoder` knows it.
        self.preprocessing: Preprocessing | None = None
        self.parts: list[StoredVectors] = []
        self.labels = np.zeros(0, "U1")
        self.ids = np.zeros(0, "int64")
        self.attributes: dict[str, np.ndarray] = {}
        self.num_added = 0
        # Smallest and largest value of each coordinate so far, (size,).
        self.low = self.high = np.zeros(0, "float32")
        # Positions in the order of their ids, for looking ids up.
        self._by_id = np.zeros(0, "int64")
        self._half_squares: np.ndarray | None = None
        if embeddings is not None:
            self.add(embeddings, labels, ids, attributes)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def embedding_size(self) -> int | None:
        """Size of the embeddings, `None` before the first `add`."""
        return self.parts[0].num_columns if self.parts else None

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
        """Returns which items pass a filter, `None` if there is no filter."""
        columns = {"label": self.labels, "id": self.ids, **self.attributes}
        return is_selected(where, columns)

    def add(
        self,
        embeddings: Any,
        labels: Any = None,
        ids: Any = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds items."""
        if ids is None:
            count = np.shape(embeddings)[:1]
            ids = self.num_added + np.arange(*count or (0,))
        self._append(self._checked(embeddings, labels, ids, attributes))

    def upsert(
        self,
        embeddings: Any,
        labels: Any,
        ids: Any,
        attributes: Mapping[str, Any] | None = None,
    ) -> np.ndarray:
        """Adds items and removes those that had the same ids.

        Returns:
            Positions that the removed items had, in rising order.
        """
        new = self._checked(embeddings, labels, ids, attributes, replaces=True)
        old = np.sort(self.positions_of(new["ids"].tolist()))
        old = old[old >= 0]
        self._remove(old)
        self._append(new)
        return old

    def delete(self, ids: Any) -> np.ndarray:
        """Removes items; returns their positions, in rising order."""
        positions = np.unique(self.positions_of(as_list(ids)))
        positions = positions[positions >= 0]
        self._remove(positions)
        return positions

    def add_encoded(
        self,
        encoder: Any,
        dataset: Any,
        ids: Any = None,
        batch_size: int = 64,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Embeds a data set and adds it in parts; see `from_encoder`."""
        columns = {"ids": ids, **(attributes or {})}
        batches = LabeledBatches(dataset, "dataset", batch_size)
        done = 0
        for embeddings, labels in _parts(encoded_batches(encoder, batches)):
            some = slice(done, done + len(labels))
            done += len(labels)
            chosen = {
                name: None if values is None else values[some]
                for name, values in columns.items()
            }
            self.add(embeddings, labels, chosen.pop("ids"), chosen)
        for name, values in columns.items():
            if values is not None and done != len(values):
                raise ValueError(
                    f"`{name}` must hold one entry for each image. "
                    f"Received: {len(values)} {name} for {done} images."
                )

    def positions_of(self, ids: list[Any]) -> np.ndarray:
        """Returns the position of each id, -1 for `None` and unknown ids."""
        ids = [_plain(id_) for id_ in ids]
        kind = str if self.ids.dtype.kind == "U" else int
        for id_ in ids:
            if id_ is not None and not isinstance(id_, kind):
                raise TypeError(
                    "Ids must be of the kind the gallery has, "
                    f"{kind.__name__}. Received: {id_!r}."
                )
        positions = np.full(len(ids), -1, "int64")
        is_given = np.array([id_ is not None for id_ in ids], bool)
        if is_given.any() and len(self):
            given = np.array([id_ for id_ in ids if id_ is not None])
            positions[is_given] = self._places_of(given)
        return positions

    def blocks(
        self, num_rows: int, selected: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields rows (rows, size), float32, and positions (rows,), in order.

        Args:
            num_rows: largest number of rows in a block.
            selected: (items,), boolean, rows to yield. Default `None`: all.
        """
        start = 0
        for part in self.parts:
            inside: Any = slice(start, start + len(part))
            count = len(part)
            if selected is not None:
                inside = np.flatnonzero(selected[inside])
                count = len(inside)
            for first in range(0, count, num_rows):
                some: Any = slice(first, min(first + num_rows, count))
                positions = np.arange(start + first, start + some.stop)
                if selected is not None:
                    some = inside[some]
                    positions = start + some
                yield part.rows(some), positions
            start += len(part)

    def half_squares(self) -> np.ndarray:
        """Returns half the squared distances from the origin, (items,).

        They are kept until the gallery changes: computing them takes as long
        as a search for one query.
        """
        if self._half_squares is None:
            origin = self.origin
            halves = np.empty(len(self), "float32")
            for rows, positions in self.blocks(SQUARE_ROWS):
                rows = rows - origin if origin.any() else rows
                halves[positions] = np.einsum("rs,rs->r", rows, rows) / 2
            self._half_squares = halves
        return self._half_squares

    def vectors(self, positions: np.ndarray) -> np.ndarray:
        """Returns embeddings by position, (..., size), float32.

        Args:
            positions: integers of any shape; negative ones give zeros.
        """
        vectors = np.zeros((*positions.shape, self.embedding_size or 0), "f4")
        start = 0
        for part in self.parts:
            inside = (positions >= start) & (positions < start + len(part))
            vectors[inside] = part.rows(positions[inside] - start)
            start += len(part)
        return vectors

    def _checked(self, embeddings, labels, ids, attributes, replaces=False):
        """The items to append, or an error."""
        new = checked_items(embeddings, labels, ids, attributes)
        rows = new["embeddings"]
        if self.embedding_size not in (None, rows.shape[1]):
            raise ValueError(
                "`embeddings` must have the size of the gallery. Received: "
                f"{rows.shape[1]}, the gallery has {self.embedding_size}."
            )
        if self.parts and set(new["attributes"]) != set(self.attributes):
            raise ValueError(
                "`attributes` must be those of the gallery, "
                f"{sorted(self.attributes)}. "
                f"Received: {sorted(new['attributes'])}."
            )
        if len(self):
            known = {"ids": self.ids, "labels": self.labels}
            for name, old in (known | self.attributes).items():
                values = new.get(name, new["attributes"].get(name))
                _check_kind(old, values, name)
            if not replaces:
                is_known = self._places_of(new["ids"]) >= 0
                _refuse_repeated(new["ids"][is_known])
        new["vectors"] = StoredVectors.encoded(rows, self.storage)
        new["low"], new["high"] = rows.min(axis=0), rows.max(axis=0)
        return new

    def _append(self, new):
        self._half_squares = None
        ids, start = new["ids"], len(self)
        order = np.argsort(ids, kind="stable")
        if start == 0:
            self._by_id = order
            self.ids, self.labels = ids, new["labels"]
            self.attributes = new["attributes"]
        else:
            places = np.searchsorted(self.ids, ids[order], sorter=self._by_id)
            self._by_id = np.insert(self._by_id, places, order + start)
            self.ids = np.concatenate([self.ids, ids])
            self.labels = np.concatenate([self.labels, new["labels"]])
            self.attributes = {
                name: np.concatenate([old, new["attributes"][name]])
                for name, old in self.attributes.items()
            }
        low, high = new["low"], new["high"]
        if len(self.low):
            low, high = np.minimum(low, self.low), np.maximum(high, self.high)
        self.low, self.high = low, high
        self.parts = [part for part in self.parts if len(part)]
        self.parts.append(new["vectors"])
        self.num_added += len(ids)

    def _remove(self, positions):
        if not len(positions):
            return
        self._half_squares = None
        left = np.ones(len(self), bool)
        left[positions] = False
        start, parts = 0, []
        for part in self.parts:
            inside = left[start : start + len(part)]
            start += len(part)
            parts.append(part if inside.all() else part.only(inside))
        # An empty part remembers the size.
        self.parts = [part for part in parts if len(part)] or parts[:1]
        moved = np.cumsum(left) - 1
        self._by_id = moved[self._by_id[left[self._by_id]]]
        self.ids, self.labels = self.ids[left], self.labels[left]
        self.attributes = {
            name: values[left] for name, values in self.attributes.items()
        }

    def _places_of(self, ids):
        """Positions of ids of the gallery's kind, -1 for unknown ones."""
        places = np.searchsorted(self.ids, ids, sorter=self._by_id)
        found = self._by_id[np.minimum(places, len(self) - 1)]
        return np.where(self.ids[found] == ids, found, -1)


def checked_items(
    embeddings: Any, labels: Any, ids: Any, attributes: Any
) -> dict[str, Any]:
    """Returns `embeddings`, `labels`, `ids` and `attributes` as plain arrays.

    The errors are those of `SearchIndex.upsert`.
    """
    if ids is None:
        raise ValueError(
            "`ids` must name the items to replace. Received: ids=None."
        )
    embeddings = checked_embeddings(embeddings)
    with np.errstate(over="ignore"):
        embeddings = checked_embeddings(embeddings.astype("float32"))
    count = len(embeddings)
    for name in attributes or {}:
        if not str(name).isidentifier() or name in RESERVED:
            raise ValueError(
                "Names of `attributes` must be words that are not one of "
                f"{sorted(RESERVED)}. Received: {name!r}."
            )
    ids = checked_ids(ids, count)
    values, counts = np.unique(ids, return_counts=True)
    _refuse_repeated(values[counts > 1])
    labels = np.zeros(count, "U1") if labels is None else labels
    return {
        "embeddings": embeddings,
        "labels": checked_labels(labels, count),
        "ids": ids,
        "attributes": {
            name: checked_labels(values, count, name)
            for name, values in (attributes or {}).items()
        },
    }


def checked_ids(ids: Any, count: int) -> np.ndarray:
    """Returns ids as int64 or strings, (count,)."""
    ids = checked_labels(ids, count, "ids")
    if ids.dtype.kind == "f":
        raise TypeError(
            f"`ids` must be integers or strings. Received: dtype {ids.dtype}."
        )
    return ids.astype("int64") if ids.dtype.kind in "biu" else ids


def as_list(ids: Any) -> list[Any]:
    """Returns one id or several as a list."""
    is_one = isinstance(ids, str | bytes) or np.ndim(ids) == 0
    return [ids] if is_one else list(ids)


def _parts(
    batches: Iterable[tuple[np.ndarray, np.ndarray]],
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Joins (embeddings, labels) batches to parts of `PART_ROWS` rows."""
    waiting: list[tuple[np.ndarray, np.ndarray]] = []
    for pair in batches:
        waiting.append(pair)
        if sum(len(labels) for _, labels in waiting) >= PART_ROWS:
            yield _joined(waiting)
            waiting = []
    if waiting:
        yield _joined(waiting)


def _joined(pairs):
    rows, labels = zip(*pairs, strict=True)
    return np.concatenate(rows), np.concatenate(labels)


def _refuse_repeated(ids):
    if len(ids):
        raise ValueError(
            "`ids` must all be different. Received: "
            f"{len(ids)} of them twice, for example {ids[0].item()!r}."
        )


def _check_kind(old, new, name):
    """Raises for strings among numbers, or numbers among strings."""
    if (old.dtype.kind == "U") != (new.dtype.kind == "U"):
        raise TypeError(
            f"`{name}` must be of the kind the gallery already has. "
            f"Received: {new.dtype}, the gallery has {old.dtype}."
        )


def _plain(id_):
    """An id as Python's own integer or string."""
    if isinstance(id_, bytes):
        return id_.decode("utf-8")
    return id_.item() if isinstance(id_, np.generic) else id_
