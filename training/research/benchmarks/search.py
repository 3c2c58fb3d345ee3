"""Search and scores, beside faiss and a plain product.

    python -m training.research.benchmarks.search --json docs/results/search.json

Embeddings are clustered unit vectors with few strong directions: coordinate k has a
deviation of 1 / sqrt(k), about that of the principal components of ImageNet
features. Indexes answer queries among `--sizes` items: ratios to faiss's exact
search, seconds to build, and recall, the share of the true neighbors that are
found. `retrieval_scores` of `--scored` embeddings is compared with a plain product
of blocks and top-k on the backend's device, which scores nothing, and with
pytorch-metric-learning.

Each contender runs in a process of its own. One that is not installed, or whose
process dies, is left out. This package searches on an accelerator where there is
one; rows `on the host` show the same without it.
"""

import importlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from tqdm import tqdm

from training.research import report
from training.research.report import Table, ratio_table

NEIGHBORS = 10
LEFT_OUT = ImportError, NotImplementedError, BrokenProcessPool
# Products of one block of queries: 64 MB.
BLOCK_NUMBERS = 2**24


@dataclass(frozen=True, kw_only=True)
class Settings(report.CommandSettings):
    """What to measure."""

    sizes: tuple[int, ...] = (10_000, 60_000, 500_000)
    """Items in the gallery of a search."""
    scored: tuple[int, ...] = (6_000, 60_000)
    """Embeddings to score."""
    embedding_size: int = 128
    num_queries: int = 1000
    repeats: int = 3
    indexes: tuple[str, ...] = ()
    """Names of indexes, the first one the unit; all by default."""
    calculators: tuple[str, ...] = ()
    """The same for scores."""

    SMALL = {
        **{"sizes": (1000,), "scored": (1200,), "embedding_size": 8},
        **{"num_queries": 20, "repeats": 1},
        "indexes": ("faiss Flat", "ExactIndex"),
    }


def clustered(count: int, size: int, seed: int) -> tuple[np.ndarray, ...]:
    """Returns unit vectors (count, size) and labels; five items a class."""
    labels = np.arange(count) // 5
    spread = 1 / np.sqrt(1 + np.arange(size))
    centers = np.random.default_rng(0).standard_normal((count, size))
    noise = np.random.default_rng(seed).standard_normal((count, size))
    rows = spread * (centers[labels] + noise)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype("float32"), labels


def faiss_flat(gallery: np.ndarray, queries: np.ndarray) -> Callable:
    """Builds an exact index with faiss alone."""
    faiss: Any = importlib.import_module("faiss")
    index = faiss.IndexFlatL2(gallery.shape[1])
    index.add(gallery)
    return lambda: index.search(queries, NEIGHBORS)[1]


def indexed(
    kind: str, gallery: np.ndarray, queries: np.ndarray, **options: Any
) -> Callable:
    """Builds an index of this package."""
    import keras_gsp as gsp

    index = getattr(gsp.retrieval, kind)(gallery, **options)
    return lambda: index.search(queries, NEIGHBORS).indices


def on_host(build: Callable, **arrays: Any) -> Callable:
    """Keeps a contender of this package from using an accelerator."""
    from keras_gsp.ops import neighbors

    if not neighbors.has_accelerator():
        raise NotImplementedError("there is no accelerator")
    neighbors.has_accelerator = lambda: False
    return build(**arrays)


def milvus(gallery: np.ndarray, queries: np.ndarray) -> Callable:
    """Builds an embedded `MilvusIndex`."""
    import keras_gsp as gsp

    folder = tempfile.TemporaryDirectory()
    index = gsp.retrieval.MilvusIndex(f"{folder.name}/items.db", "items")
    index.upsert(gallery, None, np.arange(len(gallery)))
    index.build()

    def search(_folder=folder):
        return np.asarray(index.search(queries, NEIGHBORS).ids)

    return search


def plain(rows: np.ndarray, labels: np.ndarray) -> Callable:
    """Searches as many neighbors as scores need, on the backend's device."""
    from keras import ops

    def search():
        gallery = ops.transpose(ops.convert_to_tensor(rows))
        half_squares = ops.sum(ops.square(gallery), axis=0) / 2
        block = max(1, min(1024, BLOCK_NUMBERS // len(rows)))
        most = max(int(np.bincount(labels).max()), 9)
        for start in range(0, len(rows), block):
            products = ops.matmul(rows[start : start + block], gallery)
            found = ops.top_k(products - half_squares, most)
            ops.convert_to_numpy(found[1])

    return search


def scores(rows: np.ndarray, labels: np.ndarray) -> Callable:
    """`gsp.metrics.retrieval_scores`."""
    import keras_gsp as gsp

    return lambda: gsp.metrics.retrieval_scores(rows, labels)["map_at_r"]


def pml_scores(rows: np.ndarray, labels: np.ndarray) -> Callable:
    """The same scores by pytorch-metric-learning."""
    torch: Any = importlib.import_module("torch")
    module: Any = importlib.import_module(
        "pytorch_metric_learning.utils.accuracy_calculator"
    )
    names = "precision_at_1", "r_precision", "mean_average_precision_at_r"
    score = module.AccuracyCalculator(
        include=names, k="max_bin_count", device=torch.device("cpu")
    ).get_accuracy
    tensors = torch.from_numpy(rows), torch.from_numpy(labels)
    return lambda: float(score(*tensors)[names[-1]])


INDEXES: dict[str, Callable] = {
    "faiss Flat": faiss_flat,
    "ExactIndex": partial(indexed, "ExactIndex"),
    "ExactIndex, on the host": partial(on_host, partial(indexed, "ExactIndex")),
    "ExactIndex float16": partial(indexed, "ExactIndex", storage="float16"),
    "FaissIndex IVF": partial(
        indexed, "FaissIndex", factory="IVF256,Flat", parameters="nprobe=32"
    ),
    "FaissIndex RaBitQ, 1000 rescored": partial(
        indexed,
        "FaissIndex",
        factory="RaBitQ",
        storage="float16",
        rescore=1000,
    ),
    "ScannIndex": partial(indexed, "ScannIndex"),
    "MilvusIndex embedded": milvus,
    "FaissIndex HNSW": partial(
        indexed, "FaissIndex", factory="HNSW32", parameters="efSearch=64"
    ),
}
CALCULATORS: dict[str, Callable] = {
    "plain product and top-k": plain,
    "retrieval_scores": scores,
    "retrieval_scores, on the host": partial(on_host, scores),
    "pytorch-metric-learning": pml_scores,
}


def timed(build: Callable, path: str, repeats: int) -> dict[str, Any]:
    """Builds and runs on a part to load libraries, then on all."""
    with np.load(path) as arrays:
        given = dict(arrays)
    build(**{name: one[:1000] for name, one in given.items()})()
    start = time.perf_counter()
    run = build(**given)
    built, seconds = time.perf_counter() - start, []
    for _ in range(repeats):
        start = time.perf_counter()
        found = run()
        seconds.append(time.perf_counter() - start)
    return {"built": built, "seconds": seconds, "found": found}


def compared(
    contenders: dict[str, Callable], repeats: int, **arrays: Any
) -> dict[str, dict]:
    """Runs each contender on the same arrays."""
    runs = {}
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/arrays.npz"
        np.savez(path, **arrays)
        for name, build in tqdm(contenders.items()):
            try:
                runs[name] = report.in_own_process(timed, build, path, repeats)
            except LEFT_OUT as error:
                tqdm.write(f"{name}: left out: {error}")
    return runs


def measure(settings: Settings) -> Iterator[Table]:
    """Yields a table for each size."""
    size, num_queries = settings.embedding_size, settings.num_queries
    for count in settings.sizes:
        runs = compared(
            {name: INDEXES[name] for name in settings.indexes or INDEXES},
            settings.repeats,
            gallery=clustered(count, size, 1)[0],
            queries=clustered(num_queries, size, 2)[0],
        )
        true = runs["faiss Flat" if "faiss Flat" in runs else "ExactIndex"]
        found = {}
        for name, run in runs.items():
            pairs = zip(run["found"], true["found"], strict=True)
            shared = [len(np.intersect1d(one, other)) for one, other in pairs]
            facts = {
                "queries/s": f"{num_queries / np.median(run['seconds']):,.0f}",
                "built in": f"{run['built']:.2f} s",
                "recall": f"{np.mean(shared) / NEIGHBORS:.4f}",
            }
            found[name] = run["seconds"], facts
        title = (
            f"{num_queries:,} queries, {NEIGHBORS} neighbors among "
            f"{count:,} x {size}"
        )
        yield ratio_table(found, title)
    for count in settings.scored:
        rows, labels = clustered(count, size, 0)
        runs = compared(
            {n: CALCULATORS[n] for n in settings.calculators or CALCULATORS},
            settings.repeats,
            rows=rows,
            labels=labels,
        )
        found = {}
        for name, run in runs.items():
            facts = {}
            if run["found"] is not None:
                facts["MAP@R"] = f"{run['found']:.8f}"
            found[name] = run["seconds"], facts
        title = f"Scores of {count:,} embeddings of {size} numbers"
        yield ratio_table(found, title)


if __name__ == "__main__":
    report.run_measurement(sys.modules[__name__])
