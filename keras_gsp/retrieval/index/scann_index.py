"""Approximate nearest-neighbour search with ScaNN."""

from pathlib import Path

import numpy as np

from keras_gsp.ops.arguments import check_count
from keras_gsp.retrieval.index.gallery import Gallery
from keras_gsp.retrieval.index.gallery_files import load_gallery, save_gallery
from keras_gsp.retrieval.index.neighbors import Neighbors, neighbors_at
from keras_gsp.retrieval.index.scann_import import import_scann
from keras_gsp.retrieval.index.scann_settings import (
    automatic_settings,
    check_settings,
    configured,
)
from keras_gsp.retrieval.index.search_arguments import (
    check_filled,
    checked_queries,
    excluded_positions,
)
from keras_gsp.retrieval.index.true_order import ordered_exactly
from keras_gsp.storage.whole import whole_folder


class ScannIndex:
    """Finds most of the nearest gallery items of a query, in large galleries.

    Needs ScaNN (`pip install 'keras-gsp[ann]'`, Linux). Distances are
    Euclidean and exact for what is returned; what may be missing is said by
    the certificate that `export_retriever` measures.

    Args:
        embeddings: (items, size), finite; kept as float32.
        labels: (items,), numbers or strings. Default `None`: empty strings.
        ids: (items,), integers or strings, all different. Default `None`:
            positions in the gallery.
        num_neighbors: neighbours that searches will mostly ask for, at least
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

    def __init__(
        self,
        embeddings,
        labels=None,
        ids=None,
        *,
        num_neighbors=10,
        settings=None,
        training_threads=0,
    ):
        scann = import_scann()
        check_count(num_neighbors=num_neighbors)
        self.gallery = Gallery(embeddings, labels, ids)
        if settings is None:
            settings = automatic_settings(len(self.gallery), num_neighbors)
        check_settings(settings)
        self.num_neighbors = int(num_neighbors)
        self.settings = settings
        self.training_threads = training_threads
        self._searcher = self.built_with(scann.scann_ops_pybind.builder)

    @classmethod
    def from_encoder(
        cls, encoder, dataset, *, ids=None, batch_size=64, **options
    ):
        """Embeds a data set and indexes it.

        Args:
            encoder: Keras model, images to embeddings (or to a dict with
                `"embedding"`).
            dataset: a finite `tf.data.Dataset` or `keras.utils.PyDataset` of
                (images, labels) batches, or a tuple of two arrays.
            ids: one id for each image, in order. Default `None`: positions.
            batch_size: images embedded at once when arrays are given.
            **options: the keyword arguments of the class.

        Returns:
            A `ScannIndex`.
        """
        import_scann()
        gallery = Gallery()
        gallery.add_encoded(encoder, dataset, ids, batch_size)
        return cls(gallery.embeddings, gallery.labels, gallery.ids, **options)

    def __len__(self):
        return len(self.gallery)

    def built_with(self, builder):
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
        queries,
        k=10,
        *,
        exclude_ids=None,
        leaves_to_search=None,
        pre_reorder_num_neighbors=None,
    ) -> Neighbors:
        """Finds k near gallery items of each query.

        Args:
            queries: (queries, size), or (size,) for a single one.
            k: number of neighbours, at least 1. Default 10.
            exclude_ids: as for `ExactIndex.search`.
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
        asked = min(int(k) + (exclude_ids is not None), len(self))
        indices, distances = self._searcher.search_batched_parallel(
            np.ascontiguousarray(queries),
            final_num_neighbors=asked,
            pre_reorder_num_neighbors=self.candidates(
                asked, pre_reorder_num_neighbors
            ),
            leaves_to_search=leaves_to_search,
        )
        indices, distances = ordered_exactly(
            queries, self.gallery.embeddings, indices, distances, excluded
        )
        return neighbors_at(
            self.gallery, indices[:, :shown], distances[:, :shown]
        )

    def candidates(self, k, wanted=None):
        """Candidates to order again for k neighbours, `None` without that."""
        reorder = self.settings.get("reorder")
        if reorder is None:
            return None
        return max(wanted or reorder["reordering_num_neighbors"], k)

    def save(self, path, *, overwrite=False):
        """Writes the index to a folder, without pickle.

        Args:
            path: folder to make.
            overwrite: whether to replace what is there. Default `False`.

        Raises:
            FileExistsError: something is there and `overwrite` is `False`.
        """
        check_filled(self.gallery)
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

    @classmethod
    def load(cls, path):
        """Reads an index that `save` wrote; pickled objects are refused.

        Args:
            path: the folder.

        Returns:
            A `ScannIndex`.

        Raises:
            FileNotFoundError: no index there.
            ImportError: ScaNN is not installed.
            ValueError: another kind of index, arrays that do not fit their
                description, or pickled objects.
        """
        scann = import_scann()
        index = cls.__new__(cls)
        index.gallery, facts = load_gallery(path, cls.kind)
        index.num_neighbors = facts["num_neighbors"]
        index.settings = facts["settings"]
        index.training_threads = 0
        pickles = sorted(Path(path).rglob("*.pkl"))
        if pickles:
            raise ValueError(
                "A saved index must not hold pickled ids: pickled objects can "
                f"run code and are never loaded. Received: {str(pickles[0])!r}."
            )
        index._searcher = scann.scann_ops_pybind.load_searcher(
            str(Path(path) / "scann")
        )
        if index._searcher.size() != len(index.gallery):
            raise ValueError(
                f"The index in {str(path)!r} must fit its gallery. Received: "
                f"{index._searcher.size()} and {len(index.gallery)} items."
            )
        return index
