"""Approximate nearest-neighbor search with ScaNN."""

import math
from collections.abc import Mapping
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from keras_gsp._optional import needed
from keras_gsp.retrieval.index.approximate import ApproximateIndex, Engine
from keras_gsp.retrieval.index.gallery import Gallery

import_scann = partial(
    needed,
    "scann",
    "ScannIndex",
    "'keras-gsp[ann]' (Linux, TensorFlow 2.20; `ExactIndex` works without)",
)
# Galleries below this size are searched by brute force.
BRUTE_FORCE_ITEMS = 20_000
STEPS = "pca truncate tree upper_tree score_ah score_brute_force".split()
STEPS += "reorder", "autopilot"


class ScannIndex(ApproximateIndex):
    """Finds most of the nearest gallery items of a query with ScaNN.

    Needs ScaNN (`pip install 'keras-gsp[ann]'`, Linux), which keeps its own
    copy of the embeddings. ScaNN proposes candidates, which are ranked by
    exact distance.

    Args:
        embeddings: as for `ExactIndex`, and so are `labels` and `ids`.
        settings: dict from steps of ScaNN's builder, such as `"tree"`,
            `"score_ah"` and `"reorder"`, to their keyword arguments. `None`:
            brute force below 20,000 items; above, tree, asymmetric hashing
            and reordering.
        **options: `attributes`, `storage` and `match`, as for `ExactIndex`.

    Raises:
        ImportError: ScaNN is not installed.
        TypeError, ValueError: what `ExactIndex` refuses; an unknown step.

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
    saved_options = ("settings",)
    remedy = "Search more leaves, or reorder more neighbors, in `settings`"

    def __init__(
        self,
        embeddings: Any = None,
        labels: Any = None,
        ids: Any = None,
        *,
        settings: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        import_scann()
        unknown = sorted(set(settings or {}) - set(STEPS))
        if unknown:
            raise ValueError(
                f"`settings` must name steps of ScaNN's builder, {STEPS}. "
                f"Received: {unknown}."
            )
        self.settings = None if settings is None else deepcopy(dict(settings))
        super().__init__(embeddings, labels, ids, **options)

    def num_candidates(self, k: int) -> int | None:
        """Candidates to reorder for k neighbors, `None` without reordering."""
        reorder = (self.settings or {}).get("reorder")
        return reorder and max(reorder["reordering_num_neighbors"], k)

    def built_with(self, builder: Any, gallery: Gallery | None = None) -> Any:
        """Builds a searcher by ScaNN's `builder`, of NumPy or of a graph."""
        gallery = self.gallery if gallery is None else gallery
        if self.settings is None:
            self.settings = automatic_settings(len(gallery))
        # Each search says how many neighbors it wants.
        builder = builder(gallery.embeddings, 1, "squared_l2")
        builder.set_n_training_threads(0)  # one for each core
        for step in STEPS:
            if step in self.settings:
                builder = getattr(builder, step)(**self.settings[step])
        return builder.build()

    def _built(self, gallery):
        builder = import_scann().scann_ops_pybind.builder
        return ScannEngine(self.built_with(builder, gallery), self)

    def _read(self, folder, facts):
        pickles = sorted(folder.rglob("*.pkl"))
        if pickles:
            raise ValueError(
                "A saved index must not hold pickled ids: pickled objects can "
                f"run code and are never loaded. Received: {str(pickles[0])!r}."
            )
        load = import_scann().scann_ops_pybind.load_searcher
        return ScannEngine(load(str(folder / "scann")), self)


class ScannEngine(Engine):
    """ScaNN's searcher, with the options of our index."""

    def __init__(self, searcher: Any, options: ScannIndex) -> None:
        self._searcher, self._options = searcher, options

    def __len__(self) -> int:
        return self._searcher.size()

    def append(self, vectors: np.ndarray) -> None:
        rows = np.ascontiguousarray(vectors)
        # ScaNN appends rows without a number.
        self._searcher.searcher.upsert([None] * len(rows), rows, len(rows))

    def proposed(self, queries: np.ndarray, asked: int) -> np.ndarray:
        rows, distances = self._searcher.search_batched_parallel(
            np.ascontiguousarray(queries),
            final_num_neighbors=asked,
            pre_reorder_num_neighbors=self._options.num_candidates(asked),
        )
        is_missing = np.isnan(np.asarray(distances))
        return np.where(is_missing, -1, np.asarray(rows).astype("int64"))

    def write(self, folder: Path) -> dict[str, Any]:
        (folder / "scann").mkdir()
        self._searcher.serialize(str(folder / "scann"), relative_path=True)
        return {}


def automatic_settings(num_items: int) -> dict[str, Any]:
    """Brute force below 20,000 items; above, sqrt(n) leaves with hashing."""
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
        "reorder": {"reordering_num_neighbors": 100},
    }
