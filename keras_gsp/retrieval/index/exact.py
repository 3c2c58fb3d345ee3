"""Indexes of a gallery in memory, and exact search in bounded memory."""

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self

import keras
import numpy as np

from keras_gsp._labeled_batches import LabeledBatches, encoded
from keras_gsp.data.batches import image_batches
from keras_gsp.data.preprocessing import Preprocessing, agreed, preprocessing_of
from keras_gsp.ops.neighbors import (
    PRODUCT_NUMBERS,
    NearestItems,
    ordered_exactly,
)
from keras_gsp.retrieval.augmentation import NeighborAugmentation
from keras_gsp.retrieval.index.augmented_search import AugmentedSearch
from keras_gsp.retrieval.index.columns import (
    as_numpy,
    blocks_of,
    checked_items,
)
from keras_gsp.retrieval.index.gallery import Gallery, empty_gallery
from keras_gsp.retrieval.index.one_writer import OneWriter
from keras_gsp.retrieval.index.saved_gallery import (
    read_gallery,
    save_gallery,
    saved_facts,
)
from keras_gsp.retrieval.index.search_index import Items, SearchIndex
from keras_gsp.retrieval.index.where import Where, as_list, is_selected
from keras_gsp.retrieval.matching import MatchThreshold, checked_match
from keras_gsp.retrieval.space import space_fingerprint
from keras_gsp.storage.whole import reading, whole_version


class GalleryIndex(SearchIndex):
    """Base of the indexes that hold a `Gallery` in memory; searches exactly.

    An engine overrides `_found`, `_publish` and the hooks at the end.
    `saved_options` are the names of its constructor's own arguments. A reader
    takes `gallery` once, which never changes; a writer replaces it as a whole.
    """

    # How the images were cut, if `from_encoder` knows it.
    preprocessing: Preprocessing | None = None
    saved_options: tuple[str, ...] = ()

    def __init__(
        self,
        embeddings: Any = None,
        labels: Any = None,
        ids: Any = None,
        *,
        attributes: Mapping[str, Any] | None = None,
        storage: str = "float32",
        match: MatchThreshold | None = None,
        augmentation: NeighborAugmentation | None = None,
    ) -> None:
        self.gallery = empty_gallery(storage)
        self._threads = OneWriter()
        self._match = checked_match(match)
        self.augmentation = augmentation
        if embeddings is not None:
            self.add(embeddings, labels, ids, attributes)

    @classmethod
    def from_encoder(
        cls,
        encoder: keras.Model,
        dataset: Any,
        *,
        ids: Any = None,
        **options: Any,
    ) -> Self:
        """Embeds a data set and indexes it.

        Args:
            encoder: Keras model, images to embeddings (or to a dict with
                `"embedding"`).
            dataset: a finite `tf.data.Dataset` or `keras.utils.PyDataset` of
                (images, labels) batches, or a tuple of two arrays; names of
                image files are cut as the encoder expects.
            ids: one id for each image, in order. `None`: those of
                `image_batches`, names of files or positions.
            **options: the other keyword arguments of the class.

        Raises:
            ValueError: images that are cut in another way than the encoder
                expects, or files and an encoder without `Preprocessing`.
        """
        attributes = options.pop("attributes", None)
        index = cls(**options)
        preprocessing, dataset = _cut_alike(encoder, dataset)
        batches = LabeledBatches(dataset, "dataset", 64)
        ids = getattr(dataset, "ids", None) if ids is None else ids
        index.add(*encoded(encoder, batches), ids, attributes)
        index.preprocessing = preprocessing
        index.space = space_fingerprint(encoder)
        return index

    @classmethod
    def from_shards(cls, shards: Iterable[tuple], **options: Any) -> Self:
        """Indexes a collection shard by shard.

        All float32 embeddings are never in memory together, and an engine is
        built once, of all items.

        Args:
            shards: tuples (embeddings, labels, ids), perhaps with attributes,
                as for the class.
            **options: the other keyword arguments of the class.

        Raises:
            TypeError, ValueError: what `upsert` refuses, or no items at all.

        Example:

        ```python
        rows = np.random.default_rng(0).normal(size=(2, 50, 8))
        index = gsp.retrieval.ExactIndex.from_shards(
            (
                (shard, ["cat"] * 50, np.arange(50) + 50 * number)
                for number, shard in enumerate(rows)
            ),
            storage="float16",
        )
        assert len(index) == 100
        ```
        """
        augmentation = options.pop("augmentation", None)
        index = cls(**options)
        gallery = index.gallery
        for embeddings, labels, ids, *attributes in shards:
            items = checked_items(
                embeddings, labels, ids, *attributes or [None]
            )
            gallery, _ = gallery.with_items(*items, replaces=False)
        if not len(gallery):
            raise ValueError("Expected shards with items. Received: no items.")
        return index._filled(gallery, augmentation)

    @classmethod
    def from_index(cls, index: "GalleryIndex", **options: Any) -> Self:
        """Builds another engine over the items of an index.

        The items are shared; those of `load(path, mmap=True)` stay on disk, so
        that an engine of a gallery larger than memory can be built.

        Args:
            index: an index with items, of any engine but Milvus.
            **options: keyword arguments of the class, without `storage`.

        Example:

        ```python
        exact = gsp.retrieval.ExactIndex(np.eye(3), ids=["a", "b", "c"])
        try:
            index = gsp.retrieval.FaissIndex.from_index(exact, factory="HNSW8")
            assert index.search(np.eye(3)[:1], k=1).ids == "a"
        except ImportError:
            pass
        ```
        """
        augmentation = options.pop("augmentation", index.augmentation)
        options = {"match": index.match} | options
        built = cls(storage=index.gallery.storage, **options)
        built.space, built.preprocessing = index.space, index.preprocessing
        return built._filled(index.gallery, augmentation)

    @property
    def embedding_size(self) -> int | None:
        return self.gallery.embedding_size

    def count(self, where: Where | None = None) -> int:
        gallery = self.gallery
        selected = is_selected(where, gallery.columns)
        return len(gallery) if selected is None else int(selected.sum())

    def ids(self) -> np.ndarray:
        """Returns the ids of all items, in the order of the gallery."""
        ids = self.gallery.ids[:]
        return as_numpy(ids) if ids.dtype == object else ids.copy()

    def items(self, ids: Any) -> Items:
        gallery = self.gallery
        places = gallery.positions_of(as_list(ids))
        places = places[places >= 0]
        columns = {
            name: as_numpy(values[places])
            for name, values in gallery.columns.items()
        }
        embeddings = gallery.vectors(places)
        return embeddings, columns.pop("label"), columns.pop("id"), columns

    def add(
        self,
        embeddings: Any,
        labels: Any = None,
        ids: Any = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds items; the arguments are those of the class."""
        with self._threads.changing:
            if ids is None:
                count = np.shape(embeddings)[:1]
                ids = self.gallery.num_added + np.arange(*count or (0,))
            items = checked_items(embeddings, labels, ids, attributes)
            self._change(*self.gallery.with_items(*items, replaces=False))

    def delete(self, ids: Any) -> int:
        with self._threads.changing:
            positions = self.gallery.positions_of(as_list(ids))
            gallery, removed = self.gallery.without(positions)
            self._change(gallery, removed)
        return len(removed)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes the index to a folder: plain arrays, JSON and checksums.

        `path` must be new, unless `overwrite` is `True`, which replaces a
        saved index and nothing else. Other processes may load it meanwhile:
        they get the old index or the new one. An empty index is a
        `RuntimeError`.
        """
        with whole_version(path, overwrite=overwrite) as folder:
            self.write_files(folder)

    def write_files(self, folder: Path) -> None:
        """Writes the files of the index into a folder."""
        self._check_filled()
        facts = {name: getattr(self, name) for name in self.saved_options}
        with self._threads.changing:
            facts |= self._write_engine(folder)
            facts |= self._write_rounds(folder)
            save_gallery(self, folder, {"kind": self.kind, **facts})

    @classmethod
    def load(cls, path: str | Path, *, mmap: bool = False) -> Self:
        """Reads an index that `save` wrote; pickled objects are refused.

        With `mmap` the vectors stay on disk, for a gallery larger than memory;
        their checksum is not compared. An engine's own files are read whole.
        Another kind of index, or damaged files, are a `ValueError`.
        """
        with reading(path) as folder:
            facts = saved_facts(folder, cls.kind, is_mapped=mmap)
            index = cls(**{name: facts[name] for name in cls.saved_options})
            read_gallery(index, folder, facts, is_mapped=mmap)
            index._read_engine(folder, facts)
            if config := facts.get("augmentation"):
                augmentation = NeighborAugmentation.from_config(config)
                index._augmented = AugmentedSearch(
                    augmentation,
                    index._round_index,
                    [
                        cls.load(folder / f"round{number}", mmap=mmap)
                        for number in range(augmentation.rounds + 1)
                    ],
                )
        return index

    @property
    def _dtypes(self):
        return self.gallery.dtypes

    def _put(self, rows, columns):
        with self._threads.changing:
            gallery = self.gallery.with_items(rows, columns, replaces=True)
            self._change(*gallery)

    def _found(self, queries, k, excluded, where, column=None):
        gallery, nearest = self.gallery, self.gallery.nearest
        if (selected := is_selected(where, gallery.columns)) is not None:
            blocks = partial(gallery.centered_blocks, selected=selected)
            nearest = NearestItems(blocks, gallery.vectors, gallery.origin)
        # One more than asked for, because one item may be excluded.
        candidates = nearest(queries, min(k + 1, len(gallery)))
        found = ranked(gallery, queries, candidates, excluded)
        return self._neighbors_at(*found, k, gallery, column)

    def _neighbors_at(self, distances, indices, k, gallery, column):
        """Looks up the first k items; an index of -1 is no neighbor."""
        indices = indices[:, :k]
        ids, labels = gallery.ids[indices], gallery.labels[indices]
        groups = None if column is None else gallery.columns[column][indices]
        return self._neighbors(distances[:, :k], ids, labels, indices, groups)

    def _change(self, gallery, removed):
        if self._augmented is None:
            self._publish(gallery, removed)
            return
        num_left = len(self.gallery) - len(removed)
        parts = self.gallery.ids[removed], gallery.ids[num_left:]
        ids = np.concatenate([one for one in parts if len(one)] or parts[:1])
        with self._changing(np.unique(ids)):
            self._publish(gallery, removed)

    def _round_index(self, number):
        options = {name: getattr(self, name) for name in self.saved_options}
        return type(self)(storage=self.gallery.storage, **options)

    def _located(self, near):
        gallery = self.gallery
        positions = gallery.positions_of(near.ids.ravel().tolist())
        positions = positions.reshape(near.ids.shape)
        positions[~np.isfinite(near.distances)] = -1
        return positions, gallery.vectors(positions)

    def _write_rounds(self, folder):
        if self._augmented is None:
            return {}
        self._augmented.catch_up(self)
        for number, index in enumerate(self._augmented.rounds):
            (folder / f"round{number}").mkdir()
            index.write_files(folder / f"round{number}")
        return {"augmentation": self._augmented.augmentation.get_config()}

    def _filled(self, gallery, augmentation):
        """The index, which was empty, with a gallery."""
        self._publish(gallery, np.zeros(0, "int64"))
        self.augmentation = augmentation
        return self

    def _publish(self, gallery: Gallery, removed: np.ndarray) -> None:
        """Replaces the gallery, without `removed` positions of the old one."""
        self.gallery = gallery

    def _write_engine(self, folder: Path) -> dict[str, Any]:
        """Writes the engine's files; returns more values of `index.json`."""
        return {}

    def _read_engine(self, folder: Path, facts: dict[str, Any]) -> None:
        """Reads the engine's files."""


def ranked(
    gallery: Gallery,
    queries: np.ndarray,
    candidates: np.ndarray,
    excluded: list[Any],
) -> tuple[np.ndarray, np.ndarray]:
    """Orders candidates exactly, without one excluded id each."""
    places = gallery.positions_of(excluded)
    places = np.where(places < 0, -2, places)  # -1 is no candidate
    numbers = candidates.shape[1] * queries.shape[1]
    step = max(1, PRODUCT_NUMBERS // max(1, numbers))
    parts = [
        ordered_exactly(query, gallery.vectors(found), found, place)
        for query, found, place in zip(
            *(blocks_of(one, step) for one in (queries, candidates, places)),
            strict=True,
        )
    ]
    distances, indices = map(np.concatenate, zip(*parts, strict=True))
    return distances, indices


class ExactIndex(GalleryIndex):
    """Finds the nearest gallery items of a query by comparing with all.

    A search needs about 100 MB beside the gallery.

    Args:
        embeddings: (items, size), finite. `None`: an empty index.
        labels: (items,), numbers or strings. `None`: empty strings.
        ids: (items,), integers or strings, all different. `None`: the number
            of items added before.
        attributes: arrays (items,) of numbers or strings by name, to filter
            searches by.
        storage: `"float32"`, or `"float16"` for half the memory;
            `search_recall` measures the loss.
        match: `MatchThreshold` with which searches return `is_match`.
        augmentation: `NeighborAugmentation` that decides the order of what is
            found; distances and matches stay those of the embeddings.

    Raises:
        TypeError, ValueError: what `upsert` refuses; an unknown storage.

    Example:

    ```python
    index = gsp.retrieval.ExactIndex(
        np.eye(3),
        labels=["cat", "dog", "cow"],
        ids=["a", "b", "c"],
        attributes={"year": [2019, 2021, 2024]},
    )
    recent = {"year": slice(2020, None), "label": ["dog", "cow"]}
    found = index.search([0.9, 0.1, 0.0], k=1, where=recent)
    assert found.ids.tolist() == [["b"]] and found.labels == [["dog"]]
    index.upsert(np.eye(3)[:1], ["owl"], ["c"], {"year": [2025]})
    assert index.delete(["a", "unknown"]) == 1
    ```
    """

    kind = "exact"


def _cut_alike(encoder, dataset):
    """How images are cut, and the data set to embed."""
    own = preprocessing_of(encoder)
    if isinstance(dataset, tuple | list) and len(dataset) == 2:
        images, labels = dataset
        if np.asarray(images[:1]).dtype.kind in "OSU":
            if own is None:
                raise ValueError(
                    "`encoder` must know how image files are cut: build it "
                    "with `preprocessing=gsp.data.Preprocessing(...)`, or give "
                    "`gsp.data.image_batches(...)`. Received: file names."
                )
            dataset = image_batches(images, labels, preprocessing=own)
    given = getattr(dataset, "preprocessing", None)
    return agreed({"encoder": own, "dataset": given}), dataset
