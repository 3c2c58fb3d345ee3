"""Changes the encoder of a gallery without embedding everything again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from keras_gsp.embeddings.labeled_batches import (
    LabeledBatches,
    embedding_of,
    encoded,
)
from keras_gsp.embeddings.labeled_embeddings import checked_embeddings
from keras_gsp.embeddings.processes import predictor
from keras_gsp.ops.arguments import check_count
from keras_gsp.retrieval.index.exact import ExactIndex, GalleryIndex
from keras_gsp.retrieval.index.gallery import as_list
from keras_gsp.retrieval.index.search_index import (
    Items,
    SearchIndex,
    blocks_of,
    nearest_of,
    padding_of,
)
from keras_gsp.retrieval.index.where import Where, is_selected
from keras_gsp.retrieval.space import check_space, space_fingerprint
from keras_gsp.retrieval.upgrading.space_map import Sides, learned
from keras_gsp.storage.whole import whole_file

# Neighbors that the old index is asked for at most; a limit of Milvus.
MOST_ASKED = 16_000


def upgrade(
    index: SearchIndex,
    old_encoder: Any,
    new_encoder: Any,
    sample: Any,
    *,
    into: SearchIndex | None = None,
    folder: str | Path | None = None,
    batch_size: int = 64,
    seed: int = 0,
) -> "Upgrade":
    """Makes an index of an old encoder answer queries of a new one.

    Half of the sample's classes fit maps of the new space into the old one,
    orthogonal and ridge; a quarter chooses between them, by the MAP@R of
    mapped queries; the rest certifies. The result searches at once.

    Args:
        index: index of the old encoder's embeddings, not empty.
        old_encoder: built Keras model that made it.
        new_encoder: built Keras model; embeddings may have another size.
        sample: images and labels, as for `ExactIndex.from_encoder`, that both
            encoders take: at least 12 classes with two images; hundreds are
            better.
        into: empty index for new embeddings; needed with `MilvusIndex`,
            another collection. Default `None`: an `ExactIndex`, of which
            `cut_over` makes an index of the old kind.
        folder: where finished batches are kept: the same call goes on with
            them after a kill. Default `None`: nowhere.
        batch_size: images embedded at once when arrays are given.
        seed: seed of the split of the classes.

    Returns:
        An `Upgrade`.

    Raises:
        ImportError: SciPy is not installed.
        ValueError: an empty index, or of another encoder; two encoders of one
            space; too few classes in the sample; no `into` where it is
            needed; a `folder` of other encoders.

    Example:

    ```python
    import keras
    import numpy as np
    import keras_gsp as gsp

    labels = np.repeat(np.arange(24), 3)
    noise = np.random.default_rng(0).normal(size=(72, 24))
    images = np.eye(24)[labels] + 0.1 * noise
    old = keras.Sequential([keras.Input((24,)), keras.layers.Dense(16)])
    new = keras.Sequential([keras.Input((24,)), keras.layers.Dense(12)])
    index = gsp.retrieval.ExactIndex.from_encoder(old, (images, labels))
    upgraded = gsp.retrieval.upgrade(index, old, new, (images, labels))
    queries = new.predict(images[:3], verbose=0)
    found = upgraded.search(queries, k=5)
    upgraded.embed(lambda ids: images[ids])
    gsp.retrieval.check_space(new, upgraded.cut_over())
    ```
    """
    if not len(index):
        raise ValueError("`index` must hold items. Received: an empty index.")
    check_space(old_encoder, index)
    spaces = [space_fingerprint(one) for one in (old_encoder, new_encoder)]
    if spaces[0] is not None and spaces[0] == spaces[1]:
        raise ValueError(
            "`new_encoder` must have another space than `old_encoder`. "
            "Received: equal weights and layers; nothing is to be upgraded."
        )
    if into is None:
        if not isinstance(index, GalleryIndex):
            raise ValueError(
                "`into` must be an empty index for the new embeddings, such "
                f"as another collection. Received: into=None for {index.kind}."
            )
        into = ExactIndex(storage=index.gallery.storage)
    check_space(new_encoder, into, "into")
    batches = LabeledBatches(sample, "sample", batch_size)
    old, labels = encoded(old_encoder, batches)
    new, _ = encoded(new_encoder, batches)
    sides, certificate = learned(old, new, labels, seed)
    into.space = spaces[1]
    if folder is not None:
        configs = [one and one.get_config() for one in spaces]
        _resume(Path(folder), configs, index, into)
    return Upgrade(index, into, sides, new_encoder, certificate, folder)


class Upgrade(SearchIndex):
    """An index between two encoders, as `gsp.retrieval.upgrade` makes it.

    Searched with embeddings of the new encoder, which are mapped into the old
    space to search the old index. An item that the new index has is not
    searched in the old one. Distances to old items become those of equal
    chance in the new space. Only `delete` and `roll_back` change the old
    index.

    Attributes:
        certificate: MAP@R on classes that chose nothing: `old` (old queries,
            old items), `mapped` (new queries, old items), `new` (new queries,
            new items); `cost`, mapped less old, and `gain`, new less mapped,
            as `paired_difference` returns them; `map`, the chosen kind.
    """

    kind = "upgraded"

    def __init__(
        self,
        old: SearchIndex,
        new: SearchIndex,
        sides: Sides,
        encoder: Any = None,
        certificate: dict[str, Any] | None = None,
        folder: str | Path | None = None,
    ) -> None:
        self.old, self.new, self.sides = old, new, sides
        self.certificate = certificate or {}
        self._encoder = encoder
        self._folder = None if folder is None else Path(folder)
        self._match, self._space = new.match, new.space
        # Ids that both have.
        self._moved = np.intersect1d(old.ids(), new.ids())

    @property
    def embedding_size(self) -> int | None:
        """Size of the new embeddings."""
        return self.sides.new_size

    def embed(
        self,
        load: Callable[[list[Any]], Any],
        *,
        num_items: int | None = None,
        ids: Any = None,
        batch_size: int = 256,
    ) -> int:
        """Embeds the next items with the new encoder, in a random order.

        Args:
            load: function from a list of ids to the images, in order.
            num_items: number of items. Default `None`: all that are left.
            ids: items to embed in place of the next ones, for example those
                that are searched most. Default `None`.
            batch_size: items embedded, kept and searchable at once.

        Returns:
            Number of items left.
        """
        check_count(is_optional=True, num_items=num_items)
        predict = predictor(self._encoder)
        if ids is None:
            ids = np.random.default_rng(0).permutation(self.old.ids())
            ids = ids[np.isin(ids, self.left())][:num_items]
        for some in blocks_of(np.asarray(ids), batch_size):
            _, labels, found, attributes = self.old.items(some)
            outputs = embedding_of(predict(load(found.tolist())))
            embeddings = checked_embeddings(outputs)
            if self._folder is not None:
                _write_batch(self._folder, found, embeddings)
            self.upsert(embeddings, labels, found, attributes)
        return len(self.left())

    def cut_over(self) -> SearchIndex:
        """Returns the index of the new space alone.

        Raises:
            RuntimeError: items are left to embed.
        """
        if num_left := len(self.left()):
            raise RuntimeError(
                "All items must be embedded before the cut-over. Received: "
                f"{num_left} left; call `embed`."
            )
        old, new = self.old, self.new
        is_staged = isinstance(new, ExactIndex) and new.kind != old.kind
        if not is_staged or not isinstance(old, GalleryIndex):
            return new
        embeddings, labels, ids, attributes = new.items(new.ids())
        options = {name: getattr(old, name) for name in old.saved_options}
        options |= {"storage": old.gallery.storage, "attributes": attributes}
        index = type(old)(embeddings, labels, ids, **options)
        index.space, index.match = new.space, new.match
        return index

    def roll_back(self) -> SearchIndex:
        """Returns the old index; items that came meanwhile are mapped to it."""
        added = np.setdiff1d(self.new.ids(), self.old.ids())
        for some in blocks_of(added):
            embeddings, labels, ids, attributes = self.new.items(some)
            embeddings = self.sides.to_old(embeddings)
            self.old.upsert(embeddings, labels, ids, attributes)
        return self.old

    def left(self) -> np.ndarray:
        """Returns the ids of items that only the old space has."""
        return np.setdiff1d(self.old.ids(), self._moved)

    def delete(self, ids: Any) -> int:
        """Removes items from both indexes and returns their number."""
        ids = as_list(ids)
        removed = self.old.delete(ids) + self.new.delete(ids)
        num_both = len(np.intersect1d(self._moved, ids))
        self._moved = np.setdiff1d(self._moved, ids)
        return removed - num_both

    def count(self, where: Where | None = None) -> int:
        """Returns the number of items that pass a filter."""
        both = len(self._moved)
        if where and both:
            _, labels, ids, attributes = self.old.items(self._moved)
            columns = {"label": labels, "id": ids} | attributes
            both = int(np.asarray(is_selected(where, columns)).sum())
        new = self.new.count(where) if len(self.new) else 0
        return self.old.count(where) + new - both

    def ids(self) -> np.ndarray:
        """Returns the ids of all items."""
        new = self.new.ids()
        return np.union1d(self.old.ids(), new) if len(new) else self.old.ids()

    def items(self, ids: Any) -> Items:
        """Returns items of the new space alone; see `SearchIndex.items`."""
        return self.new.items(ids)

    def _put(self, rows, columns):
        attributes = dict(columns)
        labels, ids = attributes.pop("label"), attributes.pop("id")
        self.new.upsert(rows, labels, ids, attributes)
        if len(moved := self.old.items(ids)[2]):
            self._moved = np.union1d(self._moved, moved)

    def _keep(self, name, value):
        setattr(self.new, name, value)

    def _found(self, queries, k, excluded, where):
        options = {"exclude_ids": excluded, "where": where}
        return self._of_both("search", queries, k, options)

    def _found_exactly(self, queries, k):
        return self._of_both("search_exactly", queries, k, {})

    def _of_both(self, method, queries, k, options):
        parts = [self._of_old(method, self.sides.to_old(queries), k, options)]
        if len(self.new):
            found = getattr(self.new, method)(queries, k, **options)
            parts.insert(0, (found.distances, found.ids, found.labels))
        return self._neighbors(*nearest_of(parts, min(k, len(self))))

    def _of_old(self, method, queries, k, options):
        """Distances, ids and labels of items that only the old index has."""
        most = min(len(self.old), MOST_ASKED)
        # Moved items take places among the neighbors.
        asked = min(most, k + 2 * k * len(self._moved) // len(self.old))
        while True:
            found = getattr(self.old, method)(queries, asked, **options)
            is_left = np.isfinite(found.distances)
            is_left &= ~np.isin(found.ids, self._moved)
            # One less than asked for: an item was excluded.
            may_be_more = found.counts >= asked - 1
            is_done = (is_left.sum(axis=1) >= k) | ~may_be_more
            if asked == most or is_done.all():
                break
            asked = min(most, 4 * asked)
        distances = self.sides.as_new(found.distances)
        distances = np.where(is_left, distances, np.inf)
        columns = [
            np.where(is_left, one, padding_of(one))
            for one in (found.ids, found.labels)
        ]
        return nearest_of([(distances, *columns)], k)


def _write_batch(folder, ids, embeddings):
    number = len(list(folder.glob("*.npz")))
    with whole_file(folder / f"{number:06d}.npz") as aside:
        with open(aside, "wb") as file:
            np.savez(file, ids=ids, embeddings=embeddings)


def _resume(folder, spaces, old, new):
    """Reads the batches of an interrupted upgrade, or begins one."""
    path = folder / "upgrade.json"
    if not path.exists():
        with whole_file(path) as aside:
            aside.write_text(json.dumps(spaces, indent=2) + "\n")
    elif json.loads(path.read_text()) != spaces:
        raise ValueError(
            "`folder` must be new, or of an upgrade between the same two "
            f"encoders. Received: {str(folder)!r}, made by another encoder."
        )
    for file in sorted(folder.glob("*.npz")):
        with np.load(file, allow_pickle=False) as batch:
            _, labels, ids, attributes = old.items(batch["ids"])
            embeddings = batch["embeddings"][np.isin(batch["ids"], ids)]
        new.upsert(embeddings, labels, ids, attributes)
