"""Search and scores, beside faiss and a plain product.

    python -m training.research.benchmarks.search --json docs/results/search.json

Embeddings are clustered unit vectors. Indexes answer queries among `--sizes`
items: ratios to faiss's exact search, seconds to build, growth of memory, and
recall, the share of the true neighbors that are found. `retrieval_scores` of
`--scored` embeddings is compared with a plain product of blocks and top-k on
the backend's device, which scores nothing, and with pytorch-metric-learning
(`--pml-python`, an interpreter with torch and faiss).

Each contender runs in a process of its own. An engine that is not installed is
left out.
"""

import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from training.research.report import (
    CommandSettings,
    Measurement,
    Table,
    in_own_process,
    ratio_table,
    run_measurement,
)
from training.runs.environment import peak_memory

PML = Path(__file__).with_name("pml_contender.py")
# Products of one block of queries: 64 MB.
BLOCK_NUMBERS = 2**24


@dataclass(frozen=True, kw_only=True)
class Settings(CommandSettings):
    """What to measure."""

    sizes: tuple[int, ...] = (10_000, 60_000, 500_000)
    """Items in the gallery of a search."""
    scored: tuple[int, ...] = (6_000, 60_000)
    """Embeddings to score."""
    embedding_size: int = 128
    num_queries: int = 1000
    neighbors: int = 10
    repeats: int = 3
    indexes: tuple[str, ...] = ()
    """Names of indexes, the first one the unit; all by default."""
    pml_python: Path | None = None
    """Interpreter that has torch and pytorch-metric-learning."""

    SMALL = {
        "sizes": (1000,),
        "scored": (1200,),
        "embedding_size": 8,
        "num_queries": 20,
        "neighbors": 5,
        "repeats": 1,
        "indexes": ("faiss Flat", "ExactIndex"),
    }


def clustered(count: int, size: int, seed: int) -> tuple[np.ndarray, ...]:
    """Returns unit vectors (count, size) and labels; five items a class."""
    rng = np.random.default_rng(seed)
    num_classes = max(2, count // 5)
    centers = np.random.default_rng(0).standard_normal((num_classes, size))
    labels = rng.integers(num_classes, size=count)
    rows = centers[labels] + 1.5 * rng.standard_normal((count, size))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype("float32"), labels


def faiss_alone(factory: str) -> Callable:
    """Returns a function that builds an index with faiss alone."""

    def build(gallery):
        faiss: Any = importlib.import_module("faiss")
        index = faiss.index_factory(gallery.shape[1], factory)
        index.train(gallery)
        index.add(gallery)
        return lambda queries, k: index.search(queries, k)[1]

    return build


def indexed(name: str, **options: Any) -> Callable:
    """Returns a function that builds an index of this package."""

    def build(gallery):
        import keras_gsp as gsp

        index = getattr(gsp.retrieval, name)(gallery, **options)
        return lambda queries, k: index.search(queries, k).indices

    return build


def milvus(gallery: np.ndarray) -> Callable:
    """Builds an embedded `MilvusIndex`."""
    import keras_gsp as gsp

    folder = tempfile.TemporaryDirectory()
    index = gsp.retrieval.MilvusIndex(f"{folder.name}/items.db", "items")
    index.upsert(gallery, None, np.arange(len(gallery)))
    index.build()

    def search(queries, k, _folder=folder):
        return np.asarray(index.search(queries, k).ids)

    return search


INDEXES: dict[str, Callable] = {
    "faiss Flat": faiss_alone("Flat"),
    "ExactIndex": indexed("ExactIndex"),
    "ExactIndex float16": indexed("ExactIndex", storage="float16"),
    "FaissIndex IVF": indexed(
        "FaissIndex", factory="IVF256,Flat", parameters="nprobe=32"
    ),
    "FaissIndex RaBitQ, 1000 rescored": indexed(
        "FaissIndex", factory="RaBitQ", storage="float16", rescore=1000
    ),
    "ScannIndex": indexed("ScannIndex"),
    "MilvusIndex embedded": milvus,
    "FaissIndex HNSW": indexed(
        "FaissIndex", factory="HNSW32", parameters="efSearch=64"
    ),
}


def timed_search(name: str, path: str, settings: Settings) -> dict[str, Any]:
    """Builds on a part to load libraries, then on all, and searches."""
    with np.load(path) as arrays:
        gallery, queries = arrays["gallery"], arrays["queries"]
    build, k = INDEXES[name], settings.neighbors
    build(gallery[:1000])(queries[:10], k)
    before, start = peak_memory(), time.perf_counter()
    search = build(gallery)
    built, seconds = time.perf_counter() - start, []
    for _ in range(settings.repeats):
        start = time.perf_counter()
        found = search(queries, k)
        seconds.append(time.perf_counter() - start)
    growth = (peak_memory() - before) / 2**20
    return {"built": built, "s": seconds, "mb": growth, "found": found}


def compared_indexes(count: int, settings: Settings) -> list[Measurement]:
    """Searches one gallery with every index."""
    size = settings.embedding_size
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/rows.npz"
        gallery, _ = clustered(count, size, 1)
        queries, _ = clustered(settings.num_queries, size, 2)
        np.savez(path, gallery=gallery, queries=queries)
        runs: dict[str, dict] = {}
        for name in tqdm(settings.indexes or INDEXES, desc=f"{count} items"):
            try:
                runs[name] = in_own_process(timed_search, name, path, settings)
            except ImportError as error:
                tqdm.write(f"{name}: left out: {error}")
    exact = "faiss Flat" if "faiss Flat" in runs else "ExactIndex"
    true = runs[exact]["found"]
    found = []
    for name, run in runs.items():
        pairs = zip(run["found"], true, strict=True)
        shared = [len(np.intersect1d(one, other)) for one, other in pairs]
        facts = {
            "queries/s": f"{len(queries) / np.median(run['s']):,.0f}",
            "built in": f"{run['built']:.2f} s",
            "memory grows by": f"{run['mb']:,.0f} MB",
            "recall": f"{np.mean(shared) / settings.neighbors:.4f}",
        }
        found.append(Measurement(name, tuple(run["s"]), facts))
    return found


def plain(embeddings: np.ndarray, labels: np.ndarray) -> None:
    """Searches as many neighbors as scores need, on the backend's device."""
    from keras import ops

    gallery = ops.transpose(ops.convert_to_tensor(embeddings))
    half_squares = ops.sum(ops.square(gallery), axis=0) / 2
    rows = max(1, min(1024, BLOCK_NUMBERS // len(embeddings)))
    for start in range(0, len(embeddings), rows):
        products = ops.matmul(embeddings[start : start + rows], gallery)
        most = max(int(np.bincount(labels).max()), 9)
        found = ops.top_k(products - half_squares, most)
        ops.convert_to_numpy(found[1])


def scores(embeddings: np.ndarray, labels: np.ndarray) -> float:
    """`gsp.metrics.retrieval_scores`."""
    import keras_gsp as gsp

    return gsp.metrics.retrieval_scores(embeddings, labels)["map_at_r"]


def gallery_scores(embeddings: np.ndarray, labels: np.ndarray) -> float:
    """The same with the second half as a separate gallery."""
    import keras_gsp as gsp

    half = len(labels) // 2
    return gsp.metrics.retrieval_scores(
        embeddings[:half],
        labels[:half],
        gallery_embeddings=embeddings[half:],
        gallery_labels=labels[half:],
    )["map_at_r"]


def timed_scores(score: Callable, path: str) -> dict:
    """Seconds, growth of memory and MAP@R, after a warm-up on a part."""
    with np.load(path) as arrays:
        embeddings, labels = arrays["embeddings"], arrays["labels"]
    score(embeddings[:1000], np.arange(1000) % 250)
    before, start = peak_memory(), time.perf_counter()
    found = score(embeddings, labels)
    seconds = time.perf_counter() - start
    growth = (peak_memory() - before) / 2**20
    return {"seconds": seconds, "growth_mb": growth, "map_at_r": found}


def scored_by_pml(python: Path, path: str) -> dict:
    """The same of pytorch-metric-learning, under its own interpreter."""
    command = [str(python), str(PML), "scores", path]
    answer = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(answer.stdout.splitlines()[-1])


def compared_scores(count: int, settings: Settings) -> list[Measurement]:
    """Scores the same embeddings in turns, so that other load hits all."""
    runs: dict[str, list[dict]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/embeddings.npz"
        embeddings, labels = clustered(count, settings.embedding_size, 0)
        np.savez(path, embeddings=embeddings, labels=labels)
        for _ in tqdm(range(settings.repeats), desc=f"{count} embeddings"):
            for name, score in (
                ("plain product and top-k", plain),
                ("retrieval_scores", scores),
                ("retrieval_scores, separate gallery", gallery_scores),
            ):
                found = in_own_process(timed_scores, score, path)
                runs.setdefault(name, []).append(found)
            if settings.pml_python is not None:
                found = scored_by_pml(settings.pml_python, path)
                runs.setdefault("pytorch-metric-learning", []).append(found)
    measured = []
    for name, some in runs.items():
        peak = max(run["growth_mb"] for run in some)
        facts = {"memory grows by": f"{peak:,.0f} MB"}
        if some[0]["map_at_r"] is not None:
            facts["MAP@R"] = f"{some[0]['map_at_r']:.8f}"
        seconds = tuple(run["seconds"] for run in some)
        measured.append(Measurement(name, seconds, facts))
    return measured


def measure(settings: Settings) -> Iterator[Table]:
    """Yields a table for each size."""
    size = settings.embedding_size
    for count in settings.sizes:
        title = (
            f"{settings.num_queries:,} queries, {settings.neighbors} "
            f"neighbors among {count:,} x {size}"
        )
        yield ratio_table(compared_indexes(count, settings), title)
    for count in settings.scored:
        title = f"Scores of {count:,} embeddings of {size} numbers"
        yield ratio_table(compared_scores(count, settings), title)


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
