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
from keras_gsp.retrieval.index.columns import blocks_of
from keras_gsp.retrieval.index.exact import ExactIndex, GalleryIndex
from keras_gsp.retrieval.index.neighbors import nearest_of
from keras_gsp.retrieval.index.search_index import Items, SearchIndex
from keras_gsp.retrieval.index.search_recall import own_map_at_r
from keras_gsp.retrieval.index.where import Where, as_list, is_selected
from keras_gsp.retrieval.space import check_space, space_fingerprint

# Neighbors that the old index is asked for at most; a limit of Milvus.
MOST_ASKED = 16_000
# Items that are embedded, and searchable, at once.
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
        into = ExactIndex(storage=index.gallery.storage)
    check_space(new_encoder, into, "into")
    into.space = space
    return into


@dataclasses.dataclass(frozen=True)
class SpaceMap:
    """Maps new embeddings x to x weights, of length 1 if `is_unit`.

    With (a, b) = `line`, distance d to an old item becomes a + b d, at which a
    new item is as likely to be of the query's class.
    """

    weights: np.ndarray
    is_unit: bool = False
    line: tuple[float, float] = (0.0, 1.0)

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Maps embeddings (items, new size) to (items, old size)."""
        mapped = rows @ self.weights
        if self.is_unit:
            mapped = keras.utils.normalize(mapped)
        return mapped.astype("float32")


class Upgrade(SearchIndex):
    """An index between two encoders, as `gsp.retrieval.upgrade` makes it.

    Queries are mapped into the old space for the items that only the old index
    has. Only `delete` changes the old index, which stays there as `old`.

    Attributes:
        certificate: MAP@R on classes that chose nothing: `old` (old queries,
            old items), `mapped` (new queries, old items), `new` (new queries,
            new items); `cost`, mapped less old, and `gain`, new less mapped,
            as `paired_difference` returns them.
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
        self._match, self._space = new.match, new.space
        # Ids that both have.
        self._embedded_ids = np.intersect1d(old.ids(), new.ids())

    @property
    def embedding_size(self) -> int | None:
        return len(self.space_map.weights)

    def embed(
        self,
        load: Callable[[list[Any]], Any] | None = None,
        *,
        num_items: int | None = None,
    ) -> int:
        """Embeds items in random order and returns how many are left.

        After a kill, `upgrade` goes on from a saved or stored `new` index as
        `into`.

        Args:
            load: function from a list of ids to the images, in order: an
                array, or what `gsp.data.image_batches` gives without labels.
                `None`: the files of the `Retriever` that was upgraded.
            num_items: the most to embed; `None`: all.
        """
        check_count(is_optional=True, num_items=num_items)
        ids = np.random.default_rng(0).permutation(self.left())[:num_items]
        for block in blocks_of(ids, EMBEDDED):
            if load is None:
                rows, is_read = self.embed_files(block)
                rows, block = rows[is_read], block[is_read]
            else:
                rows = self._embedded(load(block.tolist()))
            self.upsert(rows, *self.old.items(block)[1:])
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
                f"{num_left} left; call `embed`."
            )
        return self.new

    def left(self) -> np.ndarray:
        """Returns the ids of items that only the old space has."""
        return np.setdiff1d(self.old.ids(), self._embedded_ids)

    def delete(self, ids: Any) -> int:
        """Removes items from both indexes and returns their number."""
        ids = as_list(ids)
        removed = self.old.delete(ids) + self.new.delete(ids)
        counted_twice = np.intersect1d(self._embedded_ids, ids)
        self._embedded_ids = np.setdiff1d(self._embedded_ids, counted_twice)
        return removed - len(counted_twice)

    def count(self, where: Where | None = None) -> int:
        both = len(self._embedded_ids)
        if where and both:
            _, labels, ids, attributes = self.old.items(self._embedded_ids)
            columns = {"label": labels, "id": ids} | attributes
            both = int(np.asarray(is_selected(where, columns)).sum())
        new = self.new.count(where) if len(self.new) else 0
        return self.old.count(where) + new - both

    def ids(self) -> np.ndarray:
        return np.union1d(self.left(), self.new.ids())

    def items(self, ids: Any) -> Items:
        """Returns items of the new space alone; see `SearchIndex.items`."""
        return self.new.items(ids)

    def _put(self, rows, columns):
        self.new._put(rows, columns)
        if len(moved := self.old.items(columns["id"])[2]):
            self._embedded_ids = np.union1d(self._embedded_ids, moved)

    def _keep(self, name, value):
        setattr(self.new, name, value)

    @property
    def _dtypes(self):
        return self.old._dtypes

    def _found(self, *arguments):
        return self._of_both("_found", *arguments)

    def _found_exactly(self, queries, k):
        return self._of_both("_found_exactly", queries, k)

    def _of_both(self, method, queries, k, *filters):
        parts = [self._of_old(method, self.space_map(queries), k, *filters)]
        if len(self.new):
            near = getattr(self.new, method)(queries, k, *filters)
            parts.insert(0, _columns(near))
        distances, ids, labels, *groups = nearest_of(parts, min(k, len(self)))
        return self._neighbors(distances, ids, labels, None, *groups)

    def _of_old(self, method, queries, k, *filters):
        """Distances, infinite for moved items, ids and labels."""
        most = min(len(self.old), MOST_ASKED)
        # Moved items take places among the neighbors.
        asked = min(most, k + 2 * k * len(self._embedded_ids) // len(self.old))
        while True:
            near = getattr(self.old, method)(queries, asked, *filters)
            is_left = np.isfinite(near.distances)
            is_left &= ~np.isin(near.ids, self._embedded_ids)
            # One less than asked for: an item was excluded.
            is_short = (is_left.sum(axis=1) < k) & (near.counts >= asked - 1)
            if asked == most or not is_short.any():
                break
            asked = min(most, 4 * asked)
        intercept, slope = self.space_map.line
        distances = np.maximum(intercept + slope * near.distances, 0)
        return np.where(is_left, distances, np.inf), *_columns(near)[1:]


def _without_files(ids):
    raise ValueError(
        "`load` must be given: the index knows no files. Received: load=None."
    )


def _columns(near):
    """Distances, ids, labels and, in a search by group, groups."""
    columns = near.distances, near.ids, near.labels
    return columns if near.groups is None else (*columns, near.groups)


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
    """Chooses, calibrates and certifies a map; see `Upgrade.certificate`.

    `old` (items, old size) and `new` (items, new size) are the same items.
    """
    fit, choose, certify = _parts(labels)

    def scored(part, queries, items):
        index = ExactIndex(items[part], labels[part])
        return own_map_at_r(index, queries[part], labels[part], index.ids())

    maps = {p: fitted_map(new[fit], old[fit], p)(new) for p in PENALTIES}
    best = max(maps, key=lambda p: scored(choose, maps[p], old).mean())
    line = _line(*(rows[choose] for rows in (maps[best], old, new, labels)))
    space_map = fitted_map(new[~certify], old[~certify], best)
    rows = {
        "old": scored(certify, old, old),
        "mapped": scored(certify, space_map(new), old),
        "new": scored(certify, new, new),
    }
    classes = labels[certify]
    return dataclasses.replace(space_map, line=line), {
        **{name: float(np.mean(row)) for name, row in rows.items()},
        "cost": paired_difference(rows["mapped"], rows["old"], classes),
        "gain": paired_difference(rows["new"], rows["mapped"], classes),
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


def _line(mapped, old, new, labels):
    """The `line` with which distances in both spaces have equal chances."""
    # As many pairs of two classes as matter: 20 for each of one class.
    rows, columns = np.triu_indices(len(labels), 1)
    is_same = labels[rows] == labels[columns]
    share = min(1.0, 20 * is_same.sum() / max((~is_same).sum(), 1))
    kept = is_same | (np.random.default_rng(0).random(len(rows)) < share)
    rows, columns, is_same = rows[kept], columns[kept], is_same[kept]
    (a, b), (c, d) = (
        logistic_line(
            np.linalg.norm(queries[rows] - items[columns], axis=1), is_same
        )
        for queries, items in ((mapped, old), (new, new))
    )
    # Where distances tell nothing about classes they stay as they are.
    return ((a - c) / d, b / d) if b < 0 and d < 0 else (0.0, 1.0)


def logistic_line(
    distances: np.ndarray, is_same: np.ndarray
) -> tuple[float, float]:
    """Fits a and b of P(same class) = 1 / (1 + exp(-(a + b distance)))."""
    scale = distances.std() or 1.0
    features = np.stack([np.ones(len(distances)), distances / scale], axis=1)
    line = np.zeros(2)
    for _ in range(25):  # Newton's method
        share = 1 / (1 + np.exp(-np.clip(features @ line, -30, 30)))
        # A little ridge keeps classes that separate perfectly finite.
        curve = (features.T * share * (1 - share)) @ features + 1e-3 * np.eye(2)
        line += np.linalg.solve(
            curve, features.T @ (is_same - share) - 1e-3 * line
        )
    return float(line[0]), float(line[1] / scale)
