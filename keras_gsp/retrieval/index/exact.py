"""Indexes of a gallery in memory, and exact search in bounded memory."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import keras
import numpy as np

from keras_gsp.data.images import evaluation_batches
from keras_gsp.data.preprocessing import agreed, preprocessing_of
from keras_gsp.embeddings.labeled_batches import LabeledBatches, encoded
from keras_gsp.models.truncated import truncate_encoder
from keras_gsp.ops.arguments import check_count
from keras_gsp.retrieval.index.gallery import Gallery
from keras_gsp.retrieval.index.nearest import (
    SPARE_CANDIDATES,
    VECTOR_NUMBERS,
    block_rows,
    nearest_rows,
    ordered_exactly,
)
from keras_gsp.retrieval.index.saved_gallery import load_gallery, save_gallery
from keras_gsp.retrieval.index.search_index import (
    Neighbors,
    checked_queries,
    one_id_each,
)
from keras_gsp.retrieval.index.where import Where
from keras_gsp.retrieval.matching import MatchThreshold, checked_match
from keras_gsp.retrieval.space import (
    SpaceFingerprint,
    checked_space,
    space_fingerprint,
)
from keras_gsp.storage.checksums import write_checksums
from keras_gsp.storage.whole import whole_folder


class GalleryIndex:
    """Base of the indexes that hold a `Gallery` in memory; searches exactly.

    An engine overrides `search` and the hooks at the end. `saved_options` are
    the names of its constructor's own arguments.
    """

    kind: str
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
    ) -> None:
        self.gallery = Gallery(storage, match)
        if embeddings is not None:
            self.gallery.add(embeddings, labels, ids, attributes)

    @classmethod
    def from_encoder(
        cls,
        encoder: keras.Model,
        dataset: Any,
        *,
        ids: Any = None,
        batch_size: int = 64,
        attributes: Mapping[str, Any] | None = None,
        truncate_to: int | None = None,
        **options: Any,
    ) -> Self:
        """Embeds a data set and indexes it.

        Args:
            encoder: Keras model, images to embeddings (or to a dict with
                `"embedding"`).
            dataset: a finite `tf.data.Dataset` or `keras.utils.PyDataset` of
                (images, labels) batches, or a tuple of two arrays, of which
                the first may hold names of image files: they are cut as the
                encoder expects (`gsp.data.preprocessing_of`).
            ids: one id for each image, in order. Default `None`: positions.
            batch_size: images embedded at once when arrays are given.
            attributes: as for the class.
            truncate_to: number of leading coordinates to keep, normalized
                anew; queries must be embedded by
                `gsp.models.truncate_encoder(encoder, truncate_to)`. Default
                `None`: all.
            **options: the other keyword arguments of the class.

        Raises:
            ValueError: `evaluation_batches` that cut images in another way
                than the encoder expects, or file names for an encoder without
                a `Preprocessing`; a `truncate_to` above the embedding size.
        """
        encoder = truncate_encoder(encoder, truncate_to)
        index = cls(**options)
        preprocessing, dataset = _cut_alike(encoder, dataset, batch_size)
        batches = LabeledBatches(dataset, "dataset", batch_size)
        index.add(*encoded(encoder, batches), ids, attributes)
        index.gallery.preprocessing = preprocessing
        index.space = space_fingerprint(encoder)
        return index

    def __len__(self) -> int:
        return len(self.gallery)

    @property
    def embedding_size(self) -> int | None:
        """Size of the embeddings, `None` while the index is empty."""
        return self.gallery.embedding_size

    @property
    def match(self) -> MatchThreshold | None:
        """Largest distance of a match, or `None`."""
        return self.gallery.match

    @match.setter
    def match(self, match: MatchThreshold | None) -> None:
        self.gallery.match = checked_match(match, self.space)

    @property
    def space(self) -> SpaceFingerprint | None:
        """Fingerprint of the encoder, `None` if unknown; may be assigned."""
        return self.gallery.space

    @space.setter
    def space(self, space: SpaceFingerprint | None) -> None:
        checked_match(self.match, checked_space(space))
        self.gallery.space = space

    def count(self, where: Where | None = None) -> int:
        """Returns the number of items that pass a filter."""
        selected = self.gallery.selected(where)
        return len(self) if selected is None else int(selected.sum())

    def ids(self) -> np.ndarray:
        """Returns the ids of all items, in the order of the gallery."""
        return self.gallery.ids

    def items(
        self, ids: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Returns items as `upsert` takes them; see `SearchIndex.items`."""
        places = self.gallery.positions_of(list(ids))
        places = places[places >= 0]
        columns = {k: v[places] for k, v in self.gallery.columns.items()}
        embeddings = self.gallery.vectors(places)
        return embeddings, columns.pop("label"), columns.pop("id"), columns

    def add(
        self,
        embeddings: Any,
        labels: Any = None,
        ids: Any = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds items; the arguments are those of the class."""
        self._changed(self.gallery.add(embeddings, labels, ids, attributes))

    def upsert(
        self,
        embeddings: Any,
        labels: Any,
        ids: Any,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds items and replaces those with the same ids, at the end.

        See `SearchIndex.upsert` for the arguments and errors.
        """
        items = embeddings, labels, ids, attributes
        self._changed(self.gallery.add(*items, replaces=True))

    def delete(self, ids: Any) -> int:
        """Removes items and returns their number; unknown ids are ignored."""
        removed = self.gallery.delete(ids)
        self._changed(removed)
        return len(removed)

    def search(
        self,
        queries: Any,
        k: int = 10,
        *,
        exclude_ids: Any = None,
        where: Where | None = None,
    ) -> Neighbors:
        """Finds the k nearest items of each query; see `SearchIndex`."""
        gallery = self.gallery
        queries, excluded = self._checked(queries, k, exclude_ids)
        shown = min(int(k), len(gallery))
        # One more than asked for, because one item may be excluded.
        num_kept = min(shown + 1 + SPARE_CANDIDATES, len(gallery))
        blocks = self._blocks(block_rows(len(queries)), gallery.selected(where))
        candidates = nearest_rows(queries - gallery.origin, blocks, num_kept)
        distances, indices = self._ranked(queries, candidates, excluded)
        return neighbors_at(gallery, indices[:, :shown], distances[:, :shown])

    def search_exactly(self, queries: Any, k: int = 10) -> Neighbors:
        """Finds the nearest items of each query by comparing with all."""
        return GalleryIndex.search(self, queries, k)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes the index to a folder: plain arrays, JSON and checksums.

        Args:
            path: folder to make.
            overwrite: whether to replace an existing folder. Default `False`.

        Raises:
            FileExistsError: `path` exists and `overwrite` is `False`.
            RuntimeError: an empty index.
        """
        check_filled(self.gallery)
        options = {name: getattr(self, name) for name in self.saved_options}
        with whole_folder(path, overwrite=overwrite) as folder:
            facts = {"kind": self.kind, **options, **self._write_engine(folder)}
            save_gallery(self.gallery, folder, facts)
            write_checksums(folder)

    @classmethod
    def load(cls, path: str | Path, *, mmap: bool = False) -> Self:
        """Reads an index that `save` wrote; pickled objects are refused.

        Args:
            path: the folder.
            mmap: whether the vectors stay on disk, for a gallery larger than
                memory: searches read them from there, and their checksum is
                not compared. The folder must not change. An engine's own
                files are read whole. Default `False`.

        Raises:
            FileNotFoundError: no index there.
            ImportError: the engine is not installed.
            ValueError: another kind of index, arrays that do not fit their
                description, damaged files, or pickled objects.
        """
        gallery, facts = load_gallery(path, cls.kind, mmap=mmap)
        index = cls(**{name: facts[name] for name in cls.saved_options})
        index.gallery = gallery
        index._read_engine(Path(path), facts)
        return index

    def _checked(
        self, queries: Any, k: int, exclude_ids: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """Queries, and the position to exclude for each, -2 for none."""
        check_filled(self.gallery)
        queries = checked_queries(queries, self.embedding_size)
        check_count(k=k)
        ids = one_id_each(exclude_ids, len(queries))
        excluded = self.gallery.positions_of(ids)
        return queries, np.where(excluded < 0, -2, excluded)

    def _ranked(
        self, queries: np.ndarray, candidates: np.ndarray, excluded: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Orders candidates exactly; see `ordered_exactly`."""
        step = max(
            1, VECTOR_NUMBERS // (candidates.shape[1] * queries.shape[1])
        )
        parts = []
        for start in range(0, len(queries), step):
            some = slice(start, start + step)
            found = candidates[some]
            vectors = self.gallery.vectors(found)
            parts.append(
                ordered_exactly(queries[some], vectors, found, excluded[some])
            )
        distances, indices = map(np.concatenate, zip(*parts, strict=True))
        return distances, indices

    def _blocks(
        self, num_rows: int, selected: np.ndarray | None
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yields rows from the origin, half their squares and positions."""
        origin = self.gallery.origin
        halves = self.gallery.half_squares()
        for rows, positions in self.gallery.blocks(num_rows, selected):
            rows = rows - origin if origin.any() else rows
            yield rows, halves[positions], positions

    def _changed(self, removed: np.ndarray) -> None:
        """Called after a change; new items are the last ones."""

    def _write_engine(self, folder: Path) -> dict[str, Any]:
        """Writes the engine's files; returns more values of `index.json`."""
        return {}

    def _read_engine(self, folder: Path, facts: dict[str, Any]) -> None:
        """Reads the engine's files."""


class ExactIndex(GalleryIndex):
    """Finds the nearest gallery items of a query by comparing with all.

    A search needs about 100 MB beside the gallery, and a few milliseconds for
    a query among a few hundred thousand items. `FaissIndex`, `ScannIndex` and
    `MilvusIndex` search larger galleries.

    Args:
        embeddings: (items, size), finite. Default `None`: an empty index.
        labels: (items,), numbers or strings. Default `None`: empty strings.
        ids: (items,), integers or strings, all different. Default `None`:
            the number of items added before.
        attributes: arrays (items,) of numbers or strings by name, to filter
            searches by. Default `None`: none.
        storage: `"float32"`, or `"float16"` for half the memory (11 bits of
            each number), or `"int8"` for a quarter (8 bits); `search_recall`
            measures the loss. Default `"float32"`.
        match: `MatchThreshold` calibrated for the encoder, with which
            searches return `is_match`; saved with the index, and may be
            assigned later. Default `None`.

    Raises:
        TypeError: labels, ids or attributes that are neither numbers nor
            strings.
        ValueError: embeddings that are empty, not finite or not of rank 2;
            lengths that differ; a repeated id; an unknown storage.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    index = gsp.retrieval.ExactIndex(
        np.eye(3),
        labels=["cat", "dog", "cow"],
        ids=["a", "b", "c"],
        attributes={"year": [2019, 2021, 2024]},
    )
    found = index.search(np.array([[0.9, 0.1, 0.0]]), k=2)
    assert found.ids.tolist() == [["a", "b"]]
    assert found.labels.tolist() == [["cat", "dog"]]

    recent = {"year": slice(2020, None), "label": ["dog", "cow"]}
    assert index.search(np.eye(3)[:1], k=1, where=recent).ids == [["b"]]
    index.upsert(np.eye(3)[:1], ["owl"], ["c"], {"year": [2025]})
    assert index.delete(["a", "unknown"]) == 1
    assert index.search(np.eye(3)[:1], k=1).labels == [["owl"]]
    ```
    """

    kind = "exact"


def neighbors_at(
    gallery: Gallery, indices: np.ndarray, distances: np.ndarray
) -> Neighbors:
    """Looks up ids and labels; an index of -1 is no neighbor."""
    is_missing = indices < 0

    def looked_up(values):
        found = values[np.maximum(indices, 0)]
        missing = "" if found.dtype.kind == "U" else -1
        return np.where(is_missing, np.array(missing, found.dtype), found)

    distances = np.where(is_missing, np.inf, distances).astype("float32")
    match = gallery.match
    return Neighbors(
        ids=looked_up(gallery.ids),
        labels=looked_up(gallery.labels),
        distances=distances,
        indices=indices,
        counts=np.sum(~is_missing, axis=1),
        is_match=None if match is None else match.is_match(distances),
    )


def check_filled(gallery: Gallery) -> None:
    """Raises `RuntimeError` for an empty gallery."""
    if not len(gallery):
        raise RuntimeError(
            "The index must hold at least one item. Received: an empty "
            "gallery; call `upsert` first."
        )


def _cut_alike(encoder, dataset, batch_size):
    """How images are cut, and the data set to embed."""
    own = preprocessing_of(encoder)
    if isinstance(dataset, tuple | list) and len(dataset) == 2:
        images, labels = dataset
        if np.asarray(images[:1]).dtype.kind in "OSU":
            if own is None:
                raise ValueError(
                    "`encoder` must know how image files are cut: build it "
                    "with `preprocessing=gsp.data.Preprocessing(...)`, or give "
                    "`gsp.data.evaluation_batches(...)`. Received: file names."
                )
            dataset = evaluation_batches(
                images, labels, preprocessing=own, batch_size=batch_size
            )
    given = getattr(dataset, "preprocessing", None)
    return agreed({"encoder": own, "dataset": given}), dataset
