"""Changes the encoder of a gallery without embedding everything again."""

import dataclasses
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
from keras_gsp.metrics.paired_difference import paired_difference
from keras_gsp.ops.arguments import check_count
from keras_gsp.retrieval.guarantee import blocks_of
from keras_gsp.retrieval.index.exact import ExactIndex, GalleryIndex
from keras_gsp.retrieval.index.search_index import SearchIndex
from keras_gsp.retrieval.space import check_space, space_fingerprint
from keras_gsp.retrieval.upgrading.space_map import (
    FITS,
    SpaceMap,
    logistic_line,
)
from keras_gsp.retrieval.upgrading.upgraded_index import Sides, UpgradedIndex
from keras_gsp.storage.whole import whole_file

LEAST_CLASSES = 12


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

    Both encoders embed the sample. Half of its classes fit maps of the new
    space into the old one, orthogonal and ridge; a quarter chooses between
    them, by the MAP@R of mapped queries; the rest certifies. The result
    searches at once. Its `embed` embeds items anew, batch by batch, its
    `cut_over` ends the upgrade.

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
            "Received: two with equal weights and layers; nothing is to be "
            "upgraded."
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


class Upgrade(UpgradedIndex):
    """An index between two encoders, as `gsp.retrieval.upgrade` makes it.

    It searches as a `SearchIndex`, with embeddings of the new encoder. Only
    `delete` and `roll_back` change the old index.

    Args:
        old: index of the old space.
        new: index of the new space.
        sides: map and calibration.
        encoder: the new encoder.
        certificate: see below.
        folder: where finished batches are kept, or `None`.

    Attributes:
        certificate: MAP@R on classes that chose nothing: `old` (old queries,
            old items), `mapped` (new queries, old items), `new` (new queries,
            new items); `cost`, mapped less old, and `gain`, new less mapped,
            as `paired_difference` returns them; `map`, the chosen kind.
    """

    def __init__(
        self,
        old: SearchIndex,
        new: SearchIndex,
        sides: Sides,
        encoder: Any,
        certificate: dict[str, Any],
        folder: str | Path | None = None,
    ) -> None:
        super().__init__(old, new, sides)
        self.certificate = certificate
        self._encoder = encoder
        self._folder = None if folder is None else Path(folder)
        self._order: np.ndarray | None = None

    def next_ids(self, count: int) -> np.ndarray:
        """Returns the ids to embed next, in a random order."""
        if self._order is None:
            rng = np.random.default_rng(0)
            self._order = rng.permutation(self.old.ids())
        return self._order[np.isin(self._order, self.left())][:count]

    def embed(
        self,
        load: Callable[[list[Any]], Any],
        *,
        num_items: int | None = None,
        ids: Any = None,
        batch_size: int = 256,
    ) -> int:
        """Embeds the next items with the new encoder.

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
            ids = self.next_ids(num_items or len(self))
        for some in blocks_of(np.asarray(ids), batch_size):
            _, labels, ids, attributes = self.old.items(some)
            outputs = embedding_of(predict(load(ids.tolist())))
            embeddings = checked_embeddings(outputs)
            if self._folder is not None:
                _keep(self._folder, ids, embeddings)
            self.upsert(embeddings, labels, ids, attributes)
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
        old: Any = self.old
        new = self.new
        is_staged = isinstance(new, ExactIndex) and isinstance(
            old, GalleryIndex
        )
        if not is_staged or new.kind == old.kind:
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


def learned(
    old: np.ndarray, new: np.ndarray, labels: np.ndarray, seed: int = 0
) -> tuple[Sides, dict[str, Any]]:
    """Chooses and certifies map and calibration.

    Args:
        old: (items, old size).
        new: (items, new size), the same items.
        labels: (items,).
        seed: seed of the split of the classes.

    Returns:
        The sides of an `UpgradedIndex`, and `Upgrade.certificate`.
    """
    fit, choose, certify = parts_of(labels, seed)
    choice = old[choose], new[choose], labels[choose]
    maps = [SpaceMap.fitted(kind, new[fit], old[fit]) for kind in FITS]
    best = max(maps, key=lambda one: _of_mapped(one, *choice).mean())
    of_old, of_new = _calibrated(best, *choice)
    sides = Sides(best, of_old, of_new, new.shape[1])
    both = fit | choose
    to_old = SpaceMap.fitted(best.kind, new[both], old[both])
    old, new, labels = old[certify], new[certify], labels[certify]
    ids = np.arange(len(labels))
    rows = {
        name: map_at_r(ExactIndex(side, labels, ids), side, labels, ids)
        for name, side in (("old", old), ("new", new))
    }
    rows["mapped"] = _of_mapped(to_old, old, new, labels)
    certificate = {
        **{name: float(np.mean(row)) for name, row in rows.items()},
        "cost": paired_difference(rows["mapped"], rows["old"], labels),
        "gain": paired_difference(rows["new"], rows["mapped"], labels),
        "map": best.kind,
    }
    return dataclasses.replace(sides, to_old=to_old), certificate


def map_at_r(
    index: SearchIndex, queries: np.ndarray, labels: np.ndarray, ids: np.ndarray
) -> np.ndarray:
    """Returns the MAP@R of each query, NaN for the only one of its class.

    Args:
        index: any index with labels that holds the queries' items.
        queries: (queries, size).
        labels: (queries,).
        ids: (queries,), ids of the same items in the index.
    """
    _, codes, counts = np.unique(
        labels, return_inverse=True, return_counts=True
    )
    relevant = counts[codes] - 1
    depth = max(1, int(relevant.max()))
    found = index.search(queries, depth, exclude_ids=ids)
    ranks = 1 + np.arange(found.labels.shape[1])
    is_hit = found.labels == labels[:, None]
    is_hit &= (ranks <= relevant[:, None]) & np.isfinite(found.distances)
    sums = np.sum(is_hit * np.cumsum(is_hit, axis=1) / ranks, axis=1)
    return np.where(relevant > 0, sums / np.maximum(relevant, 1), np.nan)


def _of_mapped(to_old, old, new, labels):
    ids = np.arange(len(labels))
    return map_at_r(ExactIndex(old, labels, ids), to_old(new), labels, ids)


def _calibrated(to_old, old, new, labels):
    """Lines of P(same class) against distance: to old items, to new ones."""
    # As many pairs of two classes as matter: 20 for each of one class.
    rows, columns = np.triu_indices(len(labels), 1)
    is_same = labels[rows] == labels[columns]
    share = min(1.0, 20 * is_same.sum() / max((~is_same).sum(), 1))
    kept = is_same | (np.random.default_rng(0).random(len(rows)) < share)
    rows, columns, is_same = rows[kept], columns[kept], is_same[kept]
    lines = []
    for queries, items in ((to_old(new), old), (new, new)):
        distances = np.linalg.norm(queries[rows] - items[columns], axis=1)
        lines.append(logistic_line(distances, is_same))
    return lines


def parts_of(
    labels: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns masks of items that fit, choose and certify, by class."""
    names, counts = np.unique(labels, return_counts=True)
    names = names[counts > 1]
    if len(names) < LEAST_CLASSES:
        raise ValueError(
            f"`sample` must hold at least {LEAST_CLASSES} classes with two "
            f"images: they fit, choose and certify. Received: {len(names)}."
        )
    names = np.random.default_rng(seed).permutation(names)
    ends = 0, len(names) // 4, len(names) // 2, len(names)
    parts = [names[ends[i] : ends[i + 1]] for i in (2, 0, 1)]
    fit, choose, certify = (np.isin(labels, part) for part in parts)
    return fit, choose, certify


def _keep(folder, ids, embeddings):
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
