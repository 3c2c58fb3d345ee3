"""What an index searches: embeddings with a label and an id each."""

import numpy as np

from keras_gsp.embeddings.encoding import encoded_batches
from keras_gsp.embeddings.labelled_batches import LabelledBatches
from keras_gsp.embeddings.labelled_embeddings import (
    checked_embeddings,
    checked_labels,
)

# Rows that are searched, and collected from an encoder, at once.
SHARD_ROWS = 2**16


class Gallery:
    """Embeddings in shards, their labels, and an id for each.

    Args:
        embeddings: (items, size), finite; kept as float32. Default `None`:
            an empty gallery, for `add`.
        labels: (items,), numbers or strings. Default `None`: each label is
            the empty string.
        ids: (items,), integers or strings, all different. Default `None`:
            positions in the gallery.

    Raises:
        TypeError: labels or ids that are neither numbers nor strings, or not
            of the kind the gallery already has.
        ValueError: embeddings that are empty, not finite, not of rank 2 or of
            another size; lengths that do not match; an id given twice.
    """

    def __init__(self, embeddings=None, labels=None, ids=None):
        self.shards = []
        self.labels = np.zeros(0, "U1")
        self.ids = np.zeros(0, "int64")
        self._positions = {}
        self._low = self._high = None
        if embeddings is not None:
            self.add(embeddings, labels, ids)

    def __len__(self):
        return len(self.ids)

    @property
    def embedding_size(self):
        """Size of the embeddings, `None` while the gallery is empty."""
        return self.shards[0].shape[1] if self.shards else None

    @property
    def embeddings(self):
        """All embeddings as one array, (items, size), float32."""
        if len(self.shards) > 1:
            self.shards = [np.concatenate(self.shards)]
        return self.shards[0]

    @property
    def bounds(self):
        """Smallest and largest value of each coordinate, (size,) each."""
        return self._low, self._high

    def add(self, embeddings, labels=None, ids=None):
        """Adds items; a refused call adds none of them.

        Args:
            embeddings: as for the class.
            labels: as for the class.
            ids: as for the class.
        """
        embeddings = checked_embeddings(embeddings)
        with np.errstate(over="ignore"):
            embeddings = checked_embeddings(embeddings.astype("float32"))
        count, size = embeddings.shape
        if self.embedding_size not in (None, size):
            raise ValueError(
                "`embeddings` must have the size of the gallery. Received: "
                f"{size}, the gallery has {self.embedding_size}."
            )
        if labels is None:
            labels = np.zeros(count, "U1")
        labels = checked_labels(labels, count)
        if ids is None:
            ids = np.arange(len(self), len(self) + count)
        ids = _checked_ids(ids, count)
        positions = self._new_positions(ids)
        ids = _joined(self.ids, ids, "ids")
        self.labels = _joined(self.labels, labels, "labels")
        self.ids = ids
        self._positions.update(positions)
        self.shards.append(embeddings)
        low, high = embeddings.min(axis=0), embeddings.max(axis=0)
        if self._low is not None:
            low, high = np.minimum(low, self._low), np.maximum(high, self._high)
        self._low, self._high = low, high

    def add_encoded(self, encoder, dataset, ids=None, batch_size=64):
        """Embeds a data set and adds it, shard by shard.

        Args:
            encoder: Keras model, images to embeddings.
            dataset: a finite `tf.data.Dataset` or `keras.utils.PyDataset` of
                (images, labels) batches, or a tuple of two arrays.
            ids: one id for each image, in the order of the data set. Default
                `None`: positions in the gallery.
            batch_size: images embedded at once when arrays are given.
        """
        batches = LabelledBatches(dataset, "dataset", batch_size)
        done, waiting = 0, []
        for pair in encoded_batches(encoder, batches):
            waiting.append(pair)
            if sum(len(labels) for _, labels in waiting) >= SHARD_ROWS:
                done = self._add_waiting(waiting, ids, done)
        done = self._add_waiting(waiting, ids, done)
        if ids is not None and done != len(ids):
            raise ValueError(
                "`ids` must hold one id for each image. "
                f"Received: {len(ids)} ids for {done} images."
            )

    def positions_of(self, ids):
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
        return np.array([self._positions.get(i, -1) for i in ids], "int64")

    def _add_waiting(self, waiting, ids, done):
        if not waiting:
            return done
        embeddings, labels = zip(*waiting, strict=True)
        waiting.clear()
        embeddings = np.concatenate(embeddings)
        new_done = done + len(embeddings)
        chosen = None if ids is None else ids[done:new_done]
        self.add(embeddings, np.concatenate(labels), chosen)
        return new_done

    def _new_positions(self, ids):
        start = len(self)
        positions = {
            _plain(id_): start + i for i, id_ in enumerate(ids.tolist())
        }
        old = positions.keys() & self._positions.keys()
        if old or len(positions) < len(ids):
            values, counts = np.unique(ids, return_counts=True)
            twice = [*old, *values[counts > 1].tolist()]
            raise ValueError(
                "`ids` must all be different. Received: "
                f"{len(twice)} of them twice, for example {twice[0]!r}."
            )
        return positions


def _checked_ids(ids, count):
    ids = checked_labels(ids, count, "ids")
    if ids.dtype.kind == "f":
        raise TypeError(
            f"`ids` must be integers or strings. Received: dtype {ids.dtype}."
        )
    return ids.astype("int64") if ids.dtype.kind in "biu" else ids


def _joined(old, new, name):
    """Appends, keeping one kind: strings with strings, numbers with numbers."""
    if len(old) == 0:
        return new
    if (old.dtype.kind == "U") != (new.dtype.kind == "U"):
        raise TypeError(
            f"`{name}` must be of the kind the gallery already has. "
            f"Received: {new.dtype}, the gallery has {old.dtype}."
        )
    return np.concatenate([old, new])


def _plain(id_):
    """An id as the dictionary of positions keys it."""
    if isinstance(id_, bytes):
        return id_.decode("utf-8")
    return id_.item() if isinstance(id_, np.generic) else id_
