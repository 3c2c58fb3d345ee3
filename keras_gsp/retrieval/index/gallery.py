"""What an index searches: embeddings with a label, an id and attributes."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_gsp.embeddings.labeled_batches import (
    LabeledBatches,
    encoded_batches,
)
from keras_gsp.embeddings.labeled_embeddings import (
    checked_embeddings,
    checked_labels,
)
from keras_gsp.retrieval.index.stored_vectors import (
    STORAGES,
    StoredVectors,
    check_storage,
)
from keras_gsp.retrieval.index.where import Where, is_selected
from keras_gsp.retrieval.matching import MatchThreshold, checked_match

# Rows whose lengths are computed at once; they fit a cache.
SQUARE_ROWS = 4096
# Rows that are written, and collected from an encoder, at once.
SHARD_ROWS = 2**16
FORMAT = 3
_OWN_CHECKSUM = "sha256_of_this_file"
RESERVED = {"id", "label", "embedding", "embeddings", "distance"}


class Gallery:
    """Embeddings in shards, and for each a label, an id and attributes.

    Args:
        embeddings: (items, size), finite. Default `None`: an empty gallery,
            for `add`.
        labels: (items,), numbers or strings. Default `None`: each label is
            the empty string.
        ids: (items,), integers or strings, all different. Default `None`:
            the number of items that came before.
        attributes: arrays (items,) of numbers or strings by name, to filter
            by. Default `None`: none.
        storage: `"float32"`, `"float16"` or `"int8"`; see `StoredVectors`.
        match: `MatchThreshold` of the encoder, kept beside the embeddings.
            Default `None`.

    Raises:
        TypeError: labels, ids or attributes that are neither numbers nor
            strings, or not of the kind the gallery already has.
        ValueError: embeddings that are empty, not finite, not of rank 2 or of
            another size; lengths that do not match; an id given twice; other
            attributes than the gallery has.
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
        self.shards: list[StoredVectors] = []
        self.labels = np.zeros(0, "U1")
        self.ids = np.zeros(0, "int64")
        self.attributes: dict[str, np.ndarray] = {}
        # Positions in the order of their ids, for looking ids up.
        self._by_id = np.zeros(0, "int64")
        self._num_added = 0
        # Half the squared lengths, and the origin they are measured from.
        self._half_squares: tuple[np.ndarray, np.ndarray] | None = None
        self._low: Any = None
        self._high: Any = None
        if embeddings is not None:
            self.add(embeddings, labels, ids, attributes)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def embedding_size(self) -> int | None:
        """Size of the embeddings, `None` before the first `add`."""
        return self.shards[0].num_columns if self.shards else None

    @property
    def embeddings(self) -> np.ndarray:
        """All embeddings as one array, (items, size), float32."""
        if self.storage == "float32" and len(self.shards) > 1:
            rows = [shard.rows(slice(None)) for shard in self.shards]
            self.shards = [StoredVectors(np.concatenate(rows))]
        rows = [shard.rows(slice(None)) for shard in self.shards]
        return rows[0] if len(rows) == 1 else np.concatenate(rows)

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Smallest and largest value of each coordinate so far, (size,)."""
        return self._low, self._high

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """What can be filtered by: labels, ids and attributes by name."""
        return {"label": self.labels, "id": self.ids, **self.attributes}

    def selected(self, where: Where | None) -> np.ndarray | None:
        """Returns which items pass a filter, `None` where all do."""
        return is_selected(where, self.columns)

    def add(
        self,
        embeddings: Any,
        labels: Any = None,
        ids: Any = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds items; a refused call adds none of them.

        Args:
            embeddings: as for the class.
            labels: as for the class.
            ids: as for the class.
            attributes: as for the class.
        """
        self._append(self._checked(embeddings, labels, ids, attributes))

    def upsert(
        self,
        embeddings: Any,
        labels: Any,
        ids: Any,
        attributes: Mapping[str, Any] | None = None,
    ) -> np.ndarray:
        """Adds items, in place of those of the same id.

        A replaced item moves to the end of the gallery; a refused call
        changes nothing.

        Args:
            embeddings: as for the class.
            labels: as for the class.
            ids: as for the class, but not `None`.
            attributes: as for the class.

        Returns:
            Positions that the replaced items had, in rising order.
        """
        if ids is None:
            raise ValueError(
                "`ids` must say which items to replace. Received: ids=None."
            )
        new = self._checked(embeddings, labels, ids, attributes, replaces=True)
        old = np.sort(self.positions_of(new["ids"].tolist()))
        old = old[old >= 0]
        self._remove(old)
        self._append(new)
        return old

    def delete(self, ids: Any) -> np.ndarray:
        """Removes items; those behind move up.

        Args:
            ids: of the items; one that is not there is passed over.

        Returns:
            Positions that the removed items had, in rising order.

        Raises:
            TypeError: strings where the gallery has integers, or the reverse.
        """
        positions = np.unique(self.positions_of(_several(ids)))
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
        """Embeds a data set and adds it, shard by shard.

        Args:
            encoder: Keras model, images to embeddings.
            dataset: a finite `tf.data.Dataset` or `keras.utils.PyDataset` of
                (images, labels) batches, or a tuple of two arrays.
            ids: one id for each image, in the order of the data set. Default
                `None`: positions in the gallery.
            batch_size: images embedded at once when arrays are given.
            attributes: as for the class, (images,) each.
        """
        columns = {"ids": ids, **(attributes or {})}
        batches = LabeledBatches(dataset, "dataset", batch_size)
        done, waiting = 0, []
        for pair in encoded_batches(encoder, batches):
            waiting.append(pair)
            if sum(len(labels) for _, labels in waiting) >= SHARD_ROWS:
                done = self._add_waiting(waiting, columns, done)
        done = self._add_waiting(waiting, columns, done)
        for name, values in columns.items():
            if values is not None and done != len(values):
                raise ValueError(
                    f"`{name}` must hold one entry for each image. "
                    f"Received: {len(values)} {name} for {done} images."
                )

    def positions_of(self, ids: Any) -> np.ndarray:
        """Returns the position of each id, -1 for one that is not there.

        Args:
            ids: integers or strings as the gallery's; `None` is never there.

        Raises:
            TypeError: strings where the gallery has integers, or the reverse.
        """
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
        given = [id_ for id_ in ids if id_ is not None]
        if given and len(self):
            positions[is_given] = self._places_of(np.array(given))
        return positions

    def blocks(
        self, num_rows: int, selected: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields the embeddings in order, some rows at a time.

        Args:
            num_rows: rows of a block at most.
            selected: (items,), boolean, what to yield. Default `None`: all.

        Yields:
            Rows (rows, size), float32, and their positions (rows,).
        """
        start = 0
        for shard in self.shards:
            size = len(shard)
            if selected is None or selected[start : start + size].all():
                # Slices copy nothing.
                for first in range(0, size, num_rows):
                    last = min(first + num_rows, size)
                    rows = shard.rows(slice(first, last))
                    yield rows, np.arange(start + first, start + last)
            else:
                inside = np.flatnonzero(selected[start : start + size])
                for first in range(0, len(inside), num_rows):
                    places = inside[first : first + num_rows]
                    yield shard.rows(places), start + places
            start += size

    def half_squares(self, origin: np.ndarray) -> np.ndarray:
        """Returns half the squared lengths, (items,), float32.

        Kept until the gallery changes: a search for one query would spend
        most of its time on them.

        Args:
            origin: (size,), from where lengths are measured.
        """
        known = self._half_squares
        if known is None or not np.array_equal(known[0], origin):
            halves = np.empty(len(self), "float32")
            for rows, positions in self.blocks(SQUARE_ROWS):
                rows = rows - origin if origin.any() else rows
                halves[positions] = np.einsum("rs,rs->r", rows, rows) / 2
            known = self._half_squares = origin, halves
        return known[1]

    def vectors(self, positions: np.ndarray) -> np.ndarray:
        """Returns embeddings by their position, float32.

        Args:
            positions: integers of any shape; below 0 gives zeros.

        Returns:
            (..., size).
        """
        vectors = np.zeros((*positions.shape, self.embedding_size or 0), "f4")
        start = 0
        for shard in self.shards:
            inside = (positions >= start) & (positions < start + len(shard))
            if inside.all():
                flat = shard.rows(positions.reshape(-1) - start)
                return flat.reshape(vectors.shape)
            vectors[inside] = shard.rows(positions[inside] - start)
            start += len(shard)
        return vectors

    def _checked(self, embeddings, labels, ids, attributes, replaces=False):
        """What is to be appended, or an error."""
        embeddings = checked_embeddings(embeddings)
        with np.errstate(over="ignore"):
            embeddings = checked_embeddings(embeddings.astype("float32"))
        count, size = embeddings.shape
        if self.embedding_size not in (None, size):
            raise ValueError(
                "`embeddings` must have the size of the gallery. Received: "
                f"{size}, the gallery has {self.embedding_size}."
            )
        labels = np.zeros(count, "U1") if labels is None else labels
        if ids is None:
            ids = np.arange(self._num_added, self._num_added + count)
        attributes = attributes or {}
        self._check_names(attributes)
        new = {
            "vectors": StoredVectors.encoded(embeddings, self.storage),
            "low": embeddings.min(axis=0),
            "high": embeddings.max(axis=0),
            "labels": checked_labels(labels, count),
            "ids": checked_ids(ids, count),
            "attributes": {
                name: checked_labels(values, count, name)
                for name, values in attributes.items()
            },
        }
        self._check_new_ids(new["ids"], replaces)
        for name, values in new["attributes"].items():
            if len(self):
                _check_kind(self.attributes[name], values, name)
        if len(self):
            _check_kind(self.ids, new["ids"], "ids")
            _check_kind(self.labels, new["labels"], "labels")
        return new

    def _check_names(self, attributes):
        for name in attributes:
            if not str(name).isidentifier() or name in RESERVED:
                raise ValueError(
                    "Names of `attributes` must be words that are not one of "
                    f"{sorted(RESERVED)}. Received: {name!r}."
                )
        if self.shards and set(attributes) != set(self.attributes):
            raise ValueError(
                "`attributes` must be those of the gallery, "
                f"{sorted(self.attributes)}. Received: {sorted(attributes)}."
            )

    def _check_new_ids(self, ids, replaces):
        twice = []
        if not replaces and len(self) and ids.dtype.kind == self.ids.dtype.kind:
            twice = ids[self._places_of(ids) >= 0].tolist()
        values, counts = np.unique(ids, return_counts=True)
        twice += values[counts > 1].tolist()
        if twice:
            raise ValueError(
                "`ids` must all be different. Received: "
                f"{len(twice)} of them twice, for example {twice[0]!r}."
            )

    def _append(self, new):
        self._half_squares = None
        ids = new["ids"]
        start, order = len(self), np.argsort(ids, kind="stable")
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
        self.shards = [shard for shard in self.shards if len(shard)]
        self.shards.append(new["vectors"])
        self._num_added += len(ids)
        low, high = new["low"], new["high"]
        if self._low is not None:
            low, high = np.minimum(low, self._low), np.maximum(high, self._high)
        self._low, self._high = low, high

    def _remove(self, positions):
        if not len(positions):
            return
        self._half_squares = None
        is_deleted = np.zeros(len(self), bool)
        is_deleted[positions] = True
        start, shards = 0, []
        for shard in self.shards:
            inside = is_deleted[start : start + len(shard)]
            start += len(shard)
            shards.append(shard.without(inside) if inside.any() else shard)
        # The last one stays, if empty, to remember the size.
        self.shards = [shard for shard in shards if len(shard)] or shards[:1]
        left = ~is_deleted
        moved = np.cumsum(left) - 1
        self._by_id = moved[self._by_id[left[self._by_id]]]
        self.ids, self.labels = self.ids[left], self.labels[left]
        self.attributes = {
            name: values[left] for name, values in self.attributes.items()
        }

    def _places_of(self, ids):
        """Positions of ids of the gallery's kind, -1 for none."""
        places = np.searchsorted(self.ids, ids, sorter=self._by_id)
        found = self._by_id[np.minimum(places, len(self) - 1)]
        return np.where(self.ids[found] == ids, found, -1)

    def _add_waiting(self, waiting, columns, done):
        if not waiting:
            return done
        embeddings = np.concatenate([rows for rows, _ in waiting])
        labels = np.concatenate([labels for _, labels in waiting])
        waiting.clear()
        new_done = done + len(embeddings)
        chosen = {
            name: None if values is None else values[done:new_done]
            for name, values in columns.items()
        }
        ids = chosen.pop("ids")
        self.add(embeddings, labels, ids, chosen)
        return new_done


def save_gallery(gallery: Gallery, folder: Any, **facts: Any) -> None:
    """Writes a gallery and its description into an existing folder.

    Plain arrays and a JSON file with their checksums, never pickle. Vectors
    are written block by block: a gallery on disk is never read as a whole.

    Args:
        gallery: `Gallery`, not empty.
        folder: where to.
        **facts: what else the description says, JSON values.
    """
    folder = Path(folder)
    arrays = {"ids": gallery.ids, "labels": gallery.labels}
    arrays |= {
        f"attribute.{name}": values
        for name, values in gallery.attributes.items()
    }
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
    _write_vectors(gallery, folder)
    low, high = gallery.bounds
    facts |= {
        "format": FORMAT,
        "items": len(gallery),
        "embedding_size": gallery.embedding_size,
        "storage": gallery.storage,
        "attributes": sorted(gallery.attributes),
        "added": gallery._num_added,
        "low": low.tolist(),
        "high": high.tolist(),
        "match_threshold": gallery.match and gallery.match.get_config(),
        "sha256": {
            path.name: _checksum(path) for path in sorted(folder.glob("*.npy"))
        },
    }
    text = json.dumps(facts | {_OWN_CHECKSUM: _facts_checksum(facts)}, indent=2)
    (folder / "index.json").write_text(text + "\n", encoding="utf-8")


def load_gallery(
    folder: Any, kind: str, *, mmap: bool = False
) -> tuple[Gallery, dict[str, Any]]:
    """Reads a gallery and its description.

    Args:
        folder: where `save_gallery` wrote.
        kind: the `kind` that its description must say.
        mmap: whether vectors stay on disk and are read as a search needs
            them; their checksum is not compared then, which would read all.

    Returns:
        The `Gallery` and the facts it was saved with, a dict.

    Raises:
        FileNotFoundError: no index there.
        ValueError: another kind of index, arrays that do not fit their
            description, files that changed since, or pickled objects.
    """
    folder = Path(folder)
    facts = _read_facts(folder, kind)
    gallery = Gallery(storage=facts["storage"])
    values: Any = _load_array(folder, "embeddings", facts, mmap)
    expected: Any = (facts["items"], facts["embedding_size"])
    if values.shape != expected or values.dtype != facts["storage"]:
        raise ValueError(
            "The embeddings of an index must have the shape that its "
            f"index.json says, {expected}, in {facts['storage']}. "
            f"Received: {values.shape} {values.dtype} in {str(folder)!r}."
        )
    scales = None
    if gallery.storage == "int8":
        scales = _load_array(folder, "scales", facts)
    names = facts["attributes"]
    columns = {
        name: _load_array(folder, name, facts)
        for name in ("ids", "labels", *(f"attribute.{n}" for n in names))
    }
    for name, column in columns.items():
        checked_labels(column, facts["items"], name)
    checked_ids(columns["ids"], facts["items"])
    gallery._check_new_ids(columns["ids"], replaces=True)
    gallery._append(
        {
            "vectors": StoredVectors(values, scales),
            "low": np.array(facts["low"], "f4"),
            "high": np.array(facts["high"], "f4"),
            "ids": columns["ids"],
            "labels": columns["labels"],
            "attributes": {n: columns[f"attribute.{n}"] for n in names},
        }
    )
    _check_facts(folder, facts)
    gallery._num_added = facts["added"]
    if facts.get("match_threshold") is not None:
        gallery.match = MatchThreshold.from_config(facts["match_threshold"])
    return gallery, facts


def checked_ids(ids: Any, count: int) -> np.ndarray:
    """Returns ids as int64 or strings, (items,).

    Args:
        ids: (items,), integers or strings.
        count: number of items there must be.

    Raises:
        TypeError: neither integers nor strings.
        ValueError: another length.
    """
    ids = checked_labels(ids, count, "ids")
    if ids.dtype.kind == "f":
        raise TypeError(
            f"`ids` must be integers or strings. Received: dtype {ids.dtype}."
        )
    return ids.astype("int64") if ids.dtype.kind in "biu" else ids


def _write_vectors(gallery, folder):
    """Through a file, because a full disk under a map kills the process."""
    shape = len(gallery), gallery.embedding_size
    with open(folder / "embeddings.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(
            file,
            {
                "shape": shape,
                "fortran_order": False,
                "descr": np.dtype(gallery.storage).str,
            },
        )
        scales = []
        for shard in gallery.shards:
            for start in range(0, len(shard), SHARD_ROWS):
                values, part = shard.kept(slice(start, start + SHARD_ROWS))
                file.write(np.ascontiguousarray(values).data)
                scales.append(part)
    if gallery.storage == "int8":
        np.save(folder / "scales.npy", np.concatenate(scales))


def _facts_checksum(facts):
    """Of what a description says, in whatever order it says it."""
    own = {name: fact for name, fact in facts.items() if name != _OWN_CHECKSUM}
    return hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()


def _check_facts(folder, facts):
    if facts.get(_OWN_CHECKSUM) != _facts_checksum(facts):
        raise ValueError(
            "The files of an index must be as they were saved. Received: "
            f"{str(folder / 'index.json')!r}, which was changed: its SHA-256 "
            "is not the one in it."
        )


def _checksum(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_facts(folder, kind):
    path = folder / "index.json"
    if not path.is_file():
        raise FileNotFoundError(
            "`path` must be a folder that an index was saved to. Received: "
            f"{str(folder)!r}, without index.json."
        )
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        found = facts.get("kind"), facts.get("format")
    except (ValueError, AttributeError) as error:
        raise ValueError(
            f"{str(path)!r} must describe an index in JSON. Received: {error}."
        ) from error
    if found != (kind, FORMAT):
        raise ValueError(
            f"{str(folder)!r} must hold an index of kind {kind!r} in format "
            f"{FORMAT}. Received: kind {found[0]!r} in format {found[1]!r}."
        )
    wanted = {
        "items": int,
        "embedding_size": int,
        "storage": str,
        "attributes": list,
        "added": int,
        "low": list,
        "high": list,
        "sha256": dict,
    }
    for name, type_ in wanted.items():
        if not isinstance(facts.get(name), type_):
            raise ValueError(
                f"{str(path)!r} must say {name!r}, a {type_.__name__}. "
                f"Received: {facts.get(name)!r}."
            )
    if facts["storage"] not in STORAGES or not all(
        str(name).isidentifier() for name in facts["attributes"]
    ):
        raise ValueError(
            f"{str(path)!r} must name a storage of {STORAGES} and attributes "
            f"that are words. Received: {facts['storage']!r}, "
            f"{facts['attributes']}."
        )
    return facts


def _load_array(folder, name, facts, mmap=False):
    path = folder / f"{name}.npy"
    # Before it is read: what is damaged may claim any size.
    if not mmap and _checksum(path) != facts["sha256"].get(path.name):
        raise ValueError(
            "The files of an index must be as they were saved. "
            f"Received: {str(path)!r}, which is damaged or was exchanged: its "
            "SHA-256 is not the one in index.json."
        )
    try:
        array = np.load(path, "r" if mmap else None, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(
            "The arrays of an index must be plain numbers or strings; "
            "pickled objects can run code and are never loaded. "
            f"Received: {str(path)!r}: {error}"
        ) from error
    return array


def _check_kind(old, new, name):
    """Strings with strings, numbers with numbers."""
    if (old.dtype.kind == "U") != (new.dtype.kind == "U"):
        raise TypeError(
            f"`{name}` must be of the kind the gallery already has. "
            f"Received: {new.dtype}, the gallery has {old.dtype}."
        )


def _several(ids):
    is_one = isinstance(ids, str | bytes) or np.ndim(ids) == 0
    return [ids] if is_one else ids


def _plain(id_):
    """An id as Python's own integer or string."""
    if isinstance(id_, bytes):
        return id_.decode("utf-8")
    return id_.item() if isinstance(id_, np.generic) else id_
