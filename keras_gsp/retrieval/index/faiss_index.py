"""Nearest-neighbor search with faiss: graphs, clusters and compact codes."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from keras_gsp._checks import check_count
from keras_gsp._optional import needed
from keras_gsp.retrieval.index.approximate import (
    ApproximateIndex,
    Engine,
    reason_of,
)

import_faiss = partial(needed, "faiss", "FaissIndex", "'keras-gsp[faiss]'")
FILE = "faiss.index"
# Default number of candidates to rescore: for each neighbor, and at least.
RESCORED_PER_NEIGHBOR, LEAST_RESCORED = 10, 100
# Default width of a graph search, at least: faiss's own 16 misses one in six of
# 100 neighbors among 3,000 items.
LEAST_WIDTH = 64
# Rows that codes are learned from, at most, and for each cluster.
TRAINING_ROWS, CLUSTER_ROWS = 2**18, 64
# Rows that are added at once.
ADDED_ROWS = 2**16


class FaissIndex(ApproximateIndex):
    """Finds most of the nearest gallery items of a query with faiss.

    Needs faiss (`pip install 'keras-gsp[faiss]'`). faiss proposes candidates,
    which are ranked by exact distance. Its factory string chooses the engine:

    | `factory` | search | bytes an item |
    | --- | --- | --- |
    | `"Flat"` | exact | 4 size |
    | `"HNSW32"` | graph; fast, no training | 4 size + 256 |
    | `"IVF256,Flat"` | looks into the nearest of 256 clusters | 4 size |
    | `"LSHr"` | binary codes, signs after a rotation | size / 8 |
    | `"RaBitQ"` | binary codes with two factors (RaBitQ) | size / 8 + 8 |
    | `"IVF256,RaBitQ"` | the same codes inside clusters | size / 8 + 16 |
    | `"SQ8"`, `"PQ16"`, ... | scalar and product quantization | as named |

    A recall below .98 of the index's own items is warned of, when it is built
    and whenever its items double, and so are too few items to train a factory
    on, which are searched exactly. With `load(path, mmap=True)` only faiss's
    own rows or codes are in memory.

    Args:
        embeddings: as for `ExactIndex`, and so are `labels` and `ids`.
        factory: faiss's factory string.
        parameters: faiss's search parameters, for example `"nprobe=16"`
            (clusters to look into), `"efSearch=64"` (width of the graph
            search) or both, separated by commas. `None`: faiss's own, and for
            graphs twice the number of candidates, at least 64.
        rescore: candidates of a code to compare exactly, at least 1. `None`:
            ten times k, at least 100.
        **options: `attributes`, `storage` and `match`, as for `ExactIndex`.

    Raises:
        ImportError: faiss is not installed.
        TypeError, ValueError: what `ExactIndex` refuses; an unknown factory
            or parameter; `rescore` with a factory that keeps the vectors.

    Example:

    ```python
    rows = np.random.default_rng(0).normal(size=(500, 16))
    try:
        index = gsp.retrieval.FaissIndex(rows, factory="RaBitQ", rescore=50)
        assert index.search(rows[:1], k=3).ids[0, 0] == 0
    except ImportError:
        pass
    ```
    """

    kind = "faiss"
    saved_options = "factory", "parameters", "rescore"
    remedy = "Raise `nprobe`, `efSearch` or `rescore`, or take another factory"

    def __init__(
        self,
        embeddings: Any = None,
        labels: Any = None,
        ids: Any = None,
        *,
        factory: str = "Flat",
        parameters: str | None = None,
        rescore: int | None = None,
        **options: Any,
    ) -> None:
        import_faiss()
        check_count(is_optional=True, rescore=rescore)
        self.factory, self.parameters = factory, parameters
        self.rescore = rescore
        super().__init__(embeddings, labels, ids, **options)
        # Errors are raised before the first items are added.
        engine = _made(self.embedding_size, factory)
        if rescore is not None and not _has_codes(engine):
            raise ValueError(
                "`rescore` must be None with a factory that keeps the vectors "
                f"themselves. Received: rescore={rescore}, "
                f"factory={factory!r}; codes are for example 'RaBitQ', 'LSHr' "
                "and 'PQ16'."
            )
        _set_parameters(engine, parameters)

    def _built(self, gallery):
        faiss_index = _made(gallery.embedding_size, self.factory)
        # Products of numbers around zero round less.
        engine = FaissEngine(faiss_index, gallery.origin, self)
        if not faiss_index.is_trained:
            clusters = import_faiss().try_extract_index_ivf(faiss_index)
            count = CLUSTER_ROWS * getattr(clusters, "nlist", 0)
            count = min(len(gallery), max(count, TRAINING_ROWS))
            some = np.linspace(0, len(gallery) - 1, count).astype("int64")
            faiss_index.train(engine.from_origin(gallery.vectors(some)))
        for rows, _ in gallery.blocks(ADDED_ROWS):
            faiss_index.add(np.ascontiguousarray(rows))
        return engine

    def _read(self, folder, facts):
        try:
            faiss_index = import_faiss().read_index(str(folder / FILE))
        except RuntimeError as error:
            raise ValueError(
                f"{FILE} must be the file that faiss wrote. Received: "
                f"{str(folder / FILE)!r}: {reason_of(error)}"
            ) from error
        origin = np.array(facts["origin"], "float32")
        return FaissEngine(faiss_index, origin, self)


class FaissEngine(Engine):
    """faiss's index of rows from an origin, with the options of ours."""

    def __init__(
        self, faiss_index: Any, origin: np.ndarray, options: FaissIndex
    ) -> None:
        _set_parameters(faiss_index, options.parameters)
        self.index, self.origin, self._options = faiss_index, origin, options
        self.learns = not _made(faiss_index.d, options.factory).is_trained

    def __len__(self) -> int:
        return self.index.ntotal

    def append(self, vectors: np.ndarray) -> None:
        self.index.add(self.from_origin(vectors))

    def from_origin(self, rows: np.ndarray) -> np.ndarray:
        """Returns rows as faiss keeps them."""
        return np.ascontiguousarray(rows - self.origin)

    def num_rescored(self, k: int) -> int:
        if not _has_codes(self.index):
            return 0
        least = max(RESCORED_PER_NEIGHBOR * k, LEAST_RESCORED)
        return self._options.rescore or least

    def proposed(self, queries: np.ndarray, asked: int) -> np.ndarray:
        faiss, params = import_faiss(), None
        is_graph = isinstance(faiss.downcast_index(self.index), faiss.IndexHNSW)
        if is_graph and "efSearch" not in (self._options.parameters or ""):
            width = max(LEAST_WIDTH, 2 * asked)
            params = faiss.SearchParametersHNSW(efSearch=width)
        rows = self.from_origin(queries)
        return self.index.search(rows, asked, params=params)[1]

    def write(self, folder: Path) -> dict[str, Any]:
        import_faiss().write_index(self.index, str(folder / FILE))
        return {"origin": self.origin.tolist()}


def _made(size, factory):
    faiss = import_faiss()
    # An empty index: codes of 12 or 96 parts need a size they divide.
    size = 1920 if size is None else size
    if re.search(r"IDMap|IVF0|(HNSW|NSG)[01](?!\d)", str(factory)):
        # faiss ends the process for HNSW0; IDMap takes no rows without ids.
        raise ValueError(
            "`factory` must have at least one cluster or two links, and no "
            f"IDMap, for the index keeps the ids. Received: {factory!r}."
        )
    try:
        return faiss.index_factory(size, factory, faiss.METRIC_L2)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            "`factory` must be a factory string that faiss knows, such as "
            "'Flat', 'HNSW32', 'IVF256,Flat' or 'RaBitQ', for embeddings of "
            f"size {size}. Received: factory={factory!r}: {reason_of(error)}"
        ) from error


def _has_codes(engine):
    """Whether the engine keeps codes in place of the vectors."""
    faiss = import_faiss()
    engine = faiss.downcast_index(engine)
    if isinstance(engine, faiss.IndexPreTransform):
        return True
    whole = faiss.IndexFlat, faiss.IndexIVFFlat, faiss.IndexHNSWFlat
    return not isinstance(engine, whole)


def _set_parameters(engine, parameters):
    if parameters is None:
        return
    try:
        import_faiss().ParameterSpace().set_index_parameters(engine, parameters)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            "`parameters` must name search parameters of the factory, such as "
            "'nprobe=16' for clusters or 'efSearch=64' for graphs. "
            f"Received: parameters={parameters!r}: {reason_of(error)}"
        ) from error
