"""Approximate nearest-neighbor search with ScaNN."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_gsp.ops.arguments import check_count
from keras_gsp.retrieval.index.exact import ExactIndex
from keras_gsp.retrieval.index.gallery import (
    Gallery,
    load_gallery,
    save_gallery,
)
from keras_gsp.retrieval.index.nearest import ordered_exactly
from keras_gsp.retrieval.index.search_index import (
    GalleryIndex,
    Neighbors,
    check_filled,
    checked_queries,
    excluded_positions,
    neighbors_at,
)
from keras_gsp.retrieval.index.where import Where
from keras_gsp.retrieval.matching import MatchThreshold
from keras_gsp.storage.checksums import verify_checksums, write_checksums
from keras_gsp.storage.whole import whole_folder

# Below this size comparing with all is as fast as any index.
BRUTE_FORCE_ITEMS = 20_000
STEPS = (
    "pca",
    "truncate",
    "tree",
    "upper_tree",
    "score_ah",
    "score_brute_force",
    "reorder",
    "autopilot",
)


# Up to so many items that pass a filter are compared with one by one.
FEW_SELECTED = 50_000


class ScannIndex(GalleryIndex):
    """Finds most of the nearest gallery items of a query, in large galleries.

    Needs ScaNN (`pip install 'keras-gsp[ann]'`, Linux). Distances are
    Euclidean and exact for what is returned; what may be missing is said by
    the certificate that `export_retriever` measures.

    Args:
        embeddings: (items, size), finite.
        labels: (items,), numbers or strings. Default `None`: empty strings.
        ids: (items,), integers or strings, all different. Default `None`:
            positions in the gallery.
        attributes: as for `ExactIndex`.
        storage: as for `ExactIndex`, what exact distances are computed from;
            ScaNN keeps a copy of its own. Default `"float32"`.
        match: as for `ExactIndex`.
        num_neighbors: neighbors that searches will mostly ask for, at least
            1; automatic settings are made for it. Default 10.
        settings: dict from steps of ScaNN's builder (`"tree"`, `"score_ah"`,
            `"score_brute_force"`, `"reorder"`, `"pca"`, `"truncate"`,
            `"upper_tree"`, `"autopilot"`) to their keyword arguments, all of
            which can be given. Default `None`: brute force below 20,000
            items, else tree, asymmetric hashing and reordering.
        training_threads: threads that build the index; 0 means one for each
            core. Default 0.

    Raises:
        ImportError: ScaNN is not installed.
        TypeError: labels or ids that are neither numbers nor strings.
        ValueError: embeddings that are empty, not finite or not of rank 2
            (ScaNN itself would return nothing); lengths that do not match; an
            id given twice; an unknown step.

    Example:

    ```python
    rows = np.random.default_rng(0).normal(size=(100, 8))
    try:
        index = gsp.retrieval.ScannIndex(rows, ids=np.arange(100) + 7)
        assert index.search(rows[:1], k=3).ids[0, 0] == 7
    except ImportError:
        pass
    ```
    """

    kind = "scann"
    # Items are numbered as they come: which are left, in the gallery's order,
    # and which ScaNN keeps at each of its places.
    _serials: np.ndarray
    _slots: np.ndarray
    _searcher: Any

    def __init__(
        self,
        embeddings: Any,
        labels: Any = None,
        ids: Any = None,
        *,
        attributes: Mapping[str, Any] | None = None,
        storage: str = "float32",
        match: MatchThreshold | None = None,
        num_neighbors: int = 10,
        settings: Mapping[str, Any] | None = None,
        training_threads: int = 0,
    ) -> None:
        gallery = Gallery(embeddings, labels, ids, attributes, storage, match)
        self._start(gallery, num_neighbors, settings, training_threads)

    def _start(self, gallery, num_neighbors, settings, training_threads):
        import_scann()
        check_count(num_neighbors=num_neighbors)
        self.gallery = gallery
        if settings is None:
            settings = automatic_settings(len(self.gallery), num_neighbors)
        check_settings(settings)
        self.num_neighbors = int(num_neighbors)
        self.settings = dict(settings)
        self.training_threads = training_threads
        self._rebuild()

    @classmethod
    def _check_engine(cls):
        import_scann()

    @classmethod
    def _over(cls, gallery, **options):
        index = cls.__new__(cls)
        defaults = {
            "num_neighbors": 10,
            "settings": None,
            "training_threads": 0,
        }
        index._start(gallery, **(defaults | options))
        return index

    def upsert(
        self,
        embeddings: Any,
        labels: Any,
        ids: Any,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds items, in place of those of the same id.

        The tree and the codes stay those of the first gallery: build the
        index anew once most of it has been replaced.

        Args:
            embeddings: as for the class.
            labels: as for the class.
            ids: as for the class, but not `None`.
            attributes: as for the class.
        """
        before = len(self.gallery)
        replaced = self.gallery.upsert(embeddings, labels, ids, attributes)
        self._forget(replaced)
        added = np.arange(before - len(replaced), len(self.gallery))
        rows = np.ascontiguousarray(self.gallery.vectors(added))
        if not len(self._slots):
            self._rebuild()
            return
        serials = self._serials[-1:] + 1 if len(self._serials) else [0]
        serials = int(serials[0]) + np.arange(len(added))
        self._serials = np.concatenate([self._serials, serials])
        # ScaNN appends what has no place of its own yet.
        self._searcher.searcher.upsert([None] * len(rows), rows, len(rows))
        self._slots = np.concatenate([self._slots, serials])

    def delete(self, ids: Any) -> int:
        """Removes items; the ones behind them in the gallery move up.

        Args:
            ids: ids of items; one that is not there is passed over.

        Returns:
            How many were there.
        """
        positions = self.gallery.delete(ids)
        self._forget(positions)
        return len(positions)

    def search_exactly(self, queries: Any, k: int = 10) -> Neighbors:
        """Finds the nearest items of each query by comparing with all.

        Args:
            queries: as for `search`.
            k: as for `search`.
        """
        return self._exact().search(queries, k)

    def built_with(self, builder: Any) -> Any:
        """Builds a searcher of this gallery with one of ScaNN's builders.

        Args:
            builder: `scann.scann_ops_pybind.builder`, or
                `scann.scann_ops.builder` for one inside a TensorFlow graph.

        Returns:
            ScaNN's searcher.
        """
        shown = min(self.num_neighbors, len(self.gallery))
        builder = builder(self.gallery.embeddings, shown, "squared_l2")
        builder.set_n_training_threads(self.training_threads)
        return configured(builder, self.settings).build()

    def search(
        self,
        queries: Any,
        k: int = 10,
        *,
        exclude_ids: Any = None,
        where: Where | None = None,
        leaves_to_search: int | None = None,
        pre_reorder_num_neighbors: int | None = None,
    ) -> Neighbors:
        """Finds k near gallery items of each query.

        Args:
            queries: (queries, size), or (size,) for a single one.
            k: number of neighbors, at least 1. Default 10.
            exclude_ids: as for `ExactIndex.search`.
            where: as for `ExactIndex.search`. ScaNN itself has no filters:
                where few items pass, they are all compared; else ScaNN is
                asked for more until enough of what it finds passes.
            leaves_to_search: leaves of the tree to look into. Default `None`:
                as the settings say.
            pre_reorder_num_neighbors: candidates that are ordered again.
                Default `None`: as the settings say, and at least k.

        Returns:
            `Neighbors`, with `counts` below k where fewer were found.

        Raises:
            ValueError: NaN or infinity, a wrong size, k below 1, or another
                number of ids than of queries.
        """
        queries = checked_queries(queries, self.gallery)
        check_count(k=k)
        excluded = excluded_positions(exclude_ids, self.gallery, len(queries))
        shown = min(int(k), len(self))
        selected = self.gallery.selected(where)
        if selected is None:
            asked = min(shown + (exclude_ids is not None), len(self))
            enough = 0
        else:
            passing = int(selected.sum())
            if passing <= max(FEW_SELECTED, shown):
                return self._exact().search(
                    queries, k, exclude_ids=exclude_ids, where=where
                )
            enough = shown
            asked = min(2 * shown * len(self) // passing + 1, len(self))
        while True:
            distances, indices = self._found(
                queries,
                asked,
                excluded,
                selected,
                pre_reorder_num_neighbors=self.candidates(
                    asked, pre_reorder_num_neighbors
                ),
                leaves_to_search=leaves_to_search,
            )
            counts = (indices >= 0).sum(axis=1)
            if counts.min() >= enough or asked == len(self):
                break
            asked = min(4 * asked, len(self))
        return neighbors_at(
            self.gallery, indices[:, :shown], distances[:, :shown]
        )

    def candidates(self, k: int, wanted: int | None = None) -> int | None:
        """Candidates to order again for k neighbors, `None` without that."""
        reorder = self.settings.get("reorder")
        if reorder is None:
            return None
        return max(wanted or reorder["reordering_num_neighbors"], k)

    def save(self, path: Any, *, overwrite: bool = False) -> None:
        """Writes the index to a folder, without pickle.

        An index that was changed is built anew for it.

        Args:
            path: folder to make.
            overwrite: whether to replace what is there. Default `False`.

        Raises:
            FileExistsError: something is there and `overwrite` is `False`.
        """
        check_filled(self.gallery)
        if not np.array_equal(self._slots, np.arange(len(self))):
            self._rebuild()
        with whole_folder(path, overwrite=overwrite) as folder:
            save_gallery(
                self.gallery,
                folder,
                kind=self.kind,
                num_neighbors=self.num_neighbors,
                settings=self.settings,
            )
            (folder / "scann").mkdir()
            self._searcher.serialize(str(folder / "scann"), relative_path=True)
            write_checksums(folder / "scann")

    @classmethod
    def load(cls, path: Any, *, mmap: bool = False) -> "ScannIndex":
        """Reads an index that `save` wrote; pickled objects are refused.

        Args:
            path: the folder.
            mmap: as for `ExactIndex.load`; ScaNN's own files are read whole.
                Default `False`.

        Returns:
            A `ScannIndex`.

        Raises:
            FileNotFoundError: no index there.
            ImportError: ScaNN is not installed.
            ValueError: another kind of index, arrays that do not fit their
                description, damaged files, or pickled objects.
        """
        scann = import_scann()
        index = cls.__new__(cls)
        index.gallery, facts = load_gallery(path, cls.kind, mmap=mmap)
        index.num_neighbors = facts["num_neighbors"]
        index.settings = facts["settings"]
        index.training_threads = 0
        pickles = sorted(Path(path).rglob("*.pkl"))
        if pickles:
            raise ValueError(
                "A saved index must not hold pickled ids: pickled objects can "
                f"run code and are never loaded. Received: {str(pickles[0])!r}."
            )
        # ScaNN itself notices some damage, and says it in many ways.
        verify_checksums(Path(path) / "scann")
        index._searcher = scann.scann_ops_pybind.load_searcher(
            str(Path(path) / "scann")
        )
        if index._searcher.size() != len(index.gallery):
            raise ValueError(
                f"The index in {str(path)!r} must fit its gallery. Received: "
                f"{index._searcher.size()} and {len(index.gallery)} items."
            )
        index._serials = np.arange(len(index.gallery))
        index._slots = index._serials
        return index

    def _rebuild(self):
        """Builds ScaNN's searcher; its rows are then those of the gallery."""
        self._serials = np.arange(len(self.gallery))
        self._slots = self._serials
        if len(self.gallery):
            builder = import_scann().scann_ops_pybind.builder
            self._searcher = self.built_with(builder)

    def _forget(self, positions):
        """Deletes from ScaNN, which fills each hole with its last row."""
        if not len(positions):
            return
        serials = self._serials[positions]
        self._serials = np.delete(self._serials, positions)
        slots = self._slots.copy()
        order = np.argsort(slots)
        places = order[np.searchsorted(slots, serials, sorter=order)].tolist()
        # From the last on, so that no row moves before its turn.
        places.sort(reverse=True)
        size = len(slots)
        for place in places:
            size -= 1
            slots[place] = slots[size]
        self._slots = slots[:size]
        if size:
            self._searcher.searcher.delete(places)

    def _found(self, queries, asked, excluded, selected, **options):
        """Exact distances and positions of what ScaNN finds."""
        if not len(self):
            check_filled(self.gallery)
        slots, distances = self._searcher.search_batched_parallel(
            np.ascontiguousarray(queries),
            final_num_neighbors=asked,
            **options,
        )
        slots, distances = np.asarray(slots), np.asarray(distances)
        is_missing = np.isnan(distances)
        slots = np.where(is_missing, 0, slots.astype("int64"))
        indices = np.searchsorted(self._serials, self._slots[slots])
        if selected is not None:
            is_missing = is_missing | ~selected[indices]
        indices = np.where(is_missing, -1, indices)
        vectors = self.gallery.vectors(indices)
        return ordered_exactly(queries, vectors, indices, excluded)

    def _exact(self):
        exact = ExactIndex()
        exact.gallery = self.gallery
        return exact


def automatic_settings(
    num_items: int, num_neighbors: int
) -> dict[str, dict[str, Any]]:
    """Returns settings for a gallery of a size.

    Small galleries are compared with as a whole. Large ones are split into
    about sqrt(n) leaves, a tenth of which is searched with asymmetric hashing;
    the best candidates are ordered again by their true distance.

    Args:
        num_items: size of the gallery.
        num_neighbors: neighbors that will be asked for.

    Returns:
        A dict from the name of a step of ScaNN's builder to its arguments.
    """
    if num_items < BRUTE_FORCE_ITEMS:
        return {"score_brute_force": {}}
    num_leaves = round(math.sqrt(num_items))
    return {
        "tree": {
            "num_leaves": num_leaves,
            "num_leaves_to_search": max(1, round(num_leaves / 10)),
            "training_sample_size": min(num_items, 100_000),
        },
        "score_ah": {"dimensions_per_block": 2},
        "reorder": {"reordering_num_neighbors": max(100, 10 * num_neighbors)},
    }


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raises `ValueError` for a step that ScaNN's builder does not have."""
    unknown = sorted(set(settings) - set(STEPS))
    if unknown:
        raise ValueError(
            f"`settings` must name steps of ScaNN's builder, {STEPS}. "
            f"Received: {unknown}."
        )


def configured(builder: Any, settings: Mapping[str, Any]) -> Any:
    """Calls the builder's steps with their arguments and returns it."""
    for step in STEPS:
        if step in settings:
            builder = getattr(builder, step)(**settings[step])
    return builder


def import_scann() -> Any:
    """Imports ScaNN, an optional dependency.

    Returns:
        The module `scann`.

    Raises:
        ImportError: ScaNN is missing, or its operations do not load.
    """
    try:
        import scann
    # An op library built for another TensorFlow raises errors of all kinds.
    except Exception as error:  # noqa: BLE001
        raise ImportError(
            "`ScannIndex` needs ScaNN, which has wheels for Linux: "
            "pip install 'keras-gsp[ann]' (scann==1.4.2 with TensorFlow "
            "2.20). `ExactIndex` works without it. "
            f"Received: {type(error).__name__}: {error}"
        ) from error
    return scann
