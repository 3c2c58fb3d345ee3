"""Changes the encoder of a gallery without embedding everything again."""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_gsp._checks import check_count
from keras_gsp._labeled_batches import (
    LabeledBatches,
    batches_of,
    encoded,
    encoded_batches,
)
from keras_gsp.metrics.paired_difference import paired_difference
from keras_gsp.retrieval.index.columns import blocks_of, fitted
from keras_gsp.retrieval.index.exact import ExactIndex, GalleryIndex
from keras_gsp.retrieval.index.search_index import Items, SearchIndex
from keras_gsp.retrieval.index.search_recall import own_map_at_r
from keras_gsp.retrieval.index.where import Where
from keras_gsp.retrieval.space import check_space, space_fingerprint

# Items that are embedded at once.
EMBEDDED = 256
# Of leaving the rotation, as shares of the mean square of the coordinates, of
# which one is chosen: ten points of MAP@R may lie between them.
PENALTIES = 0.01, 0.3, 10.0


def upgrade(
    index: SearchIndex,
    old_encoder: Any,
    new_encoder: Any,
    sample: Any,
    *,
    into: SearchIndex | None = None,
) -> "Upgrade":
    """Makes an index of an old encoder answer queries of a new one.

    Half of the sample's classes fit linear maps of the new space into the old
    one; a quarter chooses one, by MAP@R; the rest certifies.
    `Retriever.upgrade` does it for a folder of photographs.

    Args:
        index: index of the old encoder's embeddings, not empty.
        old_encoder: built Keras model that made it.
        new_encoder: built Keras model; embeddings may have another size.
        sample: images and labels, as for `ExactIndex.from_encoder`, that both
            encoders take: at least 12 classes with two images.
        into: index for the new embeddings, empty or with those of an earlier
            call; needed with `MilvusIndex`. `None`: an `ExactIndex`, of
            which `from_index` makes another engine.

    Raises:
        ValueError: an empty index; an index or `into` of another encoder; two
            encoders of one space; too few classes in the sample.

    Example:

    ```python
    labels = np.repeat(np.arange(24), 3)
    images = np.random.default_rng(0).normal(size=(24, 24))[labels]
    old = keras.Sequential([keras.Input((24,)), keras.layers.Dense(16)])
    new = keras.Sequential([keras.Input((24,)), keras.layers.Dense(12)])
    index = gsp.retrieval.ExactIndex.from_encoder(old, (images, labels))
    upgraded = gsp.retrieval.upgrade(index, old, new, (images, labels))
    found = upgraded.search(new.predict(images[:3], verbose=0), k=5)
    upgraded.embed(lambda ids: images[ids])
    index = upgraded.cut_over()
    ```
    """
    into = index_for_upgrade(index, old_encoder, new_encoder, into)
    batches = LabeledBatches(sample, "sample", 64)
    old, labels = encoded(old_encoder, batches)
    new, _ = encoded(new_encoder, batches)
    space_map, certificate = certified_map(old, new, labels)
    return Upgrade(index, into, space_map, new_encoder, certificate)


def index_for_upgrade(
    index: SearchIndex,
    old_encoder: Any,
    new_encoder: Any,
    into: SearchIndex | None = None,
) -> SearchIndex:
    """Returns the index for new embeddings, with the new encoder's space."""
    if not len(index):
        raise ValueError("`index` must hold items. Received: an empty index.")
    check_space(old_encoder, index)
    space = space_fingerprint(new_encoder)
    if space is not None and space == space_fingerprint(old_encoder):
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
        into = ExactIndex(
            storage=index.gallery.storage, augmentation=index.augmentation
        )
    elif len(gone := np.setdiff1d(into.ids(), index.ids())):
        raise ValueError(
            "`into` must be empty, or hold items of `index` alone. Received: "
            f"{len(gone)} others: {gone[:3].tolist()}, which were deleted "
            "since; delete them from `into`."
        )
    check_space(new_encoder, into, "into")
    into.space = space
    return into


@dataclasses.dataclass(frozen=True)
class SpaceMap:
    """Maps new embeddings x to x weights, of length 1 if `is_unit`."""

    weights: np.ndarray
    is_unit: bool = False

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Maps embeddings (items, new size) to (items, old size)."""
        mapped = rows @ self.weights
        if self.is_unit:
            mapped = keras.utils.normalize(mapped)
        return mapped.astype("float32")


class Upgrade(SearchIndex):
    """An index between two encoders, as `gsp.retrieval.upgrade` makes it.

    Queries of the new encoder are mapped into the old space and searched in the
    old index; distances, positions and matches are those there. Items that
    come meanwhile are kept in both, those that go leave both.

    Attributes:
        old: the index that is searched; `new`: what `embed` fills.
        certificate: MAP@R on classes that chose nothing: `old` (old queries,
            old items), `mapped` (new queries, old items), `new` (new queries,
            new items); `cost`, mapped less old, as `paired_difference` returns
            it.
    """

    kind = "upgraded"

    def __init__(
        self,
        old: SearchIndex,
        new: SearchIndex,
        space_map: SpaceMap,
        encoder: Any = None,
        certificate: dict[str, Any] | None = None,
    ) -> None:
        self.old, self.new, self.space_map = old, new, space_map
        self.certificate = certificate or {}
        self._encoder = encoder
        # From ids to embeddings and which of them could be read.
        self.embed_files: Callable[[np.ndarray], Any] = _without_files
        self.max_neighbors, self._space = old.max_neighbors, new.space

    @property
    def embedding_size(self) -> int | None:
        return len(self.space_map.weights)

    def embed(
        self,
        load: Callable[[list[Any]], Any] | None = None,
        *,
        num_items: int | None = None,
    ) -> int:
        """Embeds items into the new index and returns how many are left.

        After a kill, `upgrade` goes on from a saved or stored `new` index as
        `into`.

        Args:
            load: function from a list of ids to the images, in order: an
                array, or what `gsp.data.image_batches` gives without labels.
                `None`: the files of the `Retriever` that was upgraded.
            num_items: the most to embed; `None`: all.
        """
        check_count(is_optional=True, num_items=num_items)
        for block in blocks_of(self.left()[:num_items], EMBEDDED):
            if load is None:
                rows, is_read = self.embed_files(block)
                rows, block = rows[is_read], block[is_read]
            else:
                rows = self._embedded(load(block.tolist()))
            if len(block):
                self.new.upsert(rows, *self.old.items(block)[1:])
        return len(self.left())

    def _embedded(self, images):
        """New embeddings of an array or of batches without labels."""
        if not isinstance(images, keras.utils.PyDataset):
            images = [images]
        batches = ((batch, batch) for batch in batches_of(images))
        return np.concatenate(
            [rows for rows, _ in encoded_batches(self._encoder, batches)]
        )

    def cut_over(self) -> SearchIndex:
        """Returns the new index; items left to embed are a `RuntimeError`."""
        if num_left := len(self.left()):
            raise RuntimeError(
                "All items must be embedded before the cut-over. Received: "
                f"{num_left} left; call `embed`, and delete the items whose "
                "files cannot be read."
            )
        return self.new

    def left(self) -> np.ndarray:
        """Returns the ids of items that only the old index has."""
        return np.setdiff1d(self.old.ids(), self.new.ids())

    def delete(self, ids: Any) -> int:
        """Removes items from both indexes and returns their number."""
        if len(self.new):
            self.new.delete(ids)
        return self.old.delete(ids)

    def count(self, where: Where | None = None) -> int:
        return self.old.count(where)

    def ids(self) -> np.ndarray:
        return self.old.ids()

    def items(self, ids: Any) -> Items:
        """Returns items of the new space alone; see `SearchIndex.items`."""
        return self.new.items(ids)

    def _put(self, rows, columns):
        size = self.embedding_size
        columns = fitted(rows, columns, size, self._dtypes)
        self.new._put(rows, columns)
        self.old._put(self.space_map(rows), columns)

    def _keep(self, name, value):
        setattr(self.new, name, value)

    @property
    def _searched(self):
        return self.old

    @property
    def _dtypes(self):
        return self.old._dtypes

    def _nearest(self, queries, *filters):
        rows = self.space_map(queries.reshape(-1, queries.shape[-1]))
        rows = rows.reshape(*queries.shape[:2], -1)
        return self.old._nearest(rows, *filters)


def _without_files(ids):
    raise ValueError(
        "`load` must be given: the index knows no files. Received: load=None."
    )


def fitted_map(
    source: np.ndarray, target: np.ndarray, penalty: float
) -> SpaceMap:
    """Fits a map of the rows X of `source` to the rows Y of `target`.

    Least squares with a penalty of leaving the nearest rotation Q = a U V, with
    X^T Y = U S V and its scale a: the W of the smallest
    |X W - Y|^2 + penalty m |W - Q|^2, where m is the mean square of X.
    """
    lengths = np.linalg.norm(target, axis=1)
    is_unit = bool(np.allclose(lengths, 1.0, atol=1e-3))
    source, target = source.astype("float64"), target.astype("float64")
    products, gram = source.T @ target, source.T @ source
    left, singular, right = np.linalg.svd(products, False)
    rotation = left @ right
    rotation *= singular.sum() / np.square(source @ rotation).sum()
    penalty = penalty * np.trace(gram) / len(gram)
    weights = np.linalg.solve(
        gram + penalty * np.eye(len(gram)), products + penalty * rotation
    )
    return SpaceMap(weights, is_unit)


def certified_map(
    old: np.ndarray, new: np.ndarray, labels: np.ndarray
) -> tuple[SpaceMap, dict[str, Any]]:
    """Chooses and certifies a map; see `Upgrade.certificate`.

    `old` (items, old size) and `new` (items, new size) are the same items.
    """
    fit, choose, certify = _parts(labels)

    def scored(part, queries, items):
        index = ExactIndex(items[part], labels[part])
        return own_map_at_r(index, queries[part], labels[part], index.ids())

    maps = {p: fitted_map(new[fit], old[fit], p)(new) for p in PENALTIES}
    best = max(maps, key=lambda p: scored(choose, maps[p], old).mean())
    space_map = fitted_map(new[~certify], old[~certify], best)
    rows = {
        "old": scored(certify, old, old),
        "mapped": scored(certify, space_map(new), old),
        "new": scored(certify, new, new),
    }
    classes = labels[certify]
    return space_map, {
        **{name: float(np.mean(row)) for name, row in rows.items()},
        "cost": paired_difference(rows["mapped"], rows["old"], classes),
    }


def _parts(labels):
    """Masks of items that fit, choose and certify, by class."""
    names, counts = np.unique(labels, return_counts=True)
    names = names[counts > 1]
    if len(names) < 12:
        raise ValueError(
            "`sample` must hold at least 12 classes with two images: they "
            f"fit, choose and certify. Received: {len(names)}."
        )
    names = np.random.default_rng(0).permutation(names)
    parts = np.split(names, [len(names) // 4, len(names) // 2])
    choose, certify, fit = (np.isin(labels, part) for part in parts)
    return fit, choose, certify
