"""Search and scores, beside faiss and a plain product, up to ten million rows.

    python -m training.research.benchmarks.search --json docs/results/search.json
    python -m training.research.benchmarks.search --sizes --scored --rows 10000000 --features birds.npz --folder FOLDER --json docs/results/large_gallery.json

Embeddings are clustered unit vectors with few strong directions: coordinate k has a
deviation of 1 / sqrt(k), about that of the principal components of ImageNet
features. Indexes answer queries among `--sizes` items: ratios to faiss's exact
search, seconds to build, and recall, the share of the true neighbors that are
found. `retrieval_scores` of `--scored` embeddings is compared with a plain product
of blocks and top-k on the backend's device, which scores nothing.

Each contender runs in a process of its own. One that is not installed, or whose
process dies, is left out. This package searches on an accelerator where there is
one; rows `on the host` show the same without it.

A gallery of `--rows` embeddings, a hundred of a class, has the spectrum of
`--features`, an `.npz` with `labels` and a matrix: the centers of classes have the
covariance of those of real classes, and each class varies as a real one, all reduced
to 128 principal components. They are Parquet shards as `training.embed` writes them,
with strings as ids and labels. Each engine builds shard by shard, saves, is loaded
with `mmap=True` by another process, and searched for rows of the same classes that it
does not hold. faiss's build begins with the saved exact index, which stays on disk;
its minutes come on top. Memory is the peak of resident pages, pages of mapped files
among them. The truth is the exact search in float32. Then 1 % of the rows are deleted
and 1 % replaced, without a rebuild; "recall after" is that of 100 queries, beside the
exact search in the changed index. ScaNN keeps float32 rows twice while it builds, and
Milvus Lite inserts slowly: both hold the first million rows, and Milvus Lite answers
20 of the queries. The same command goes on with what its `--folder` has.
"""

import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from training.embedding.collection import (
    MANIFEST,
    OK,
    read_embeddings,
    shard_name,
    write_shard,
)
from training.research import report
from training.research.report import Table, ratio_table

NEIGHBORS, CLASS_ROWS, SINGLE = 10, 100, 100
LEFT_OUT = ImportError, NotImplementedError, BrokenProcessPool
# Products of one block of queries: 64 MB.
BLOCK_NUMBERS = 2**24
LIBRARIES = {"faiss": "faiss", "scann": "scann", "milvus": "pymilvus"}
NAMES = {
    "exact": "exact, float16",
    "faiss": "faiss, codes",
    "scann": "ScaNN",
    "milvus": "Milvus Lite",
}
# Rows of ScaNN and Milvus Lite, at most.
LIMIT = 1_000_000


# Name, phase and keys of a number, its unit, digits, and the aim.
MEASURES = (
    ("build, minutes", "build", "build seconds", 60, 1, "30"),
    ("the same, of processors", "build", "build processor", 60, 1, ""),
    ("load of the machine meanwhile", "build", "build load", 1, 0, ""),
    ("memory to build, GB", "build", "build_memory", 1, 1, "6"),
    ("save, s", "build", "save seconds", 1, 0, ""),
    ("on disk, GB", "build", "disk", 1, 2, ""),
    ("load, s", "search", "load seconds", 1, 2, "5"),
    ("first query, ms", "search", "first seconds", 1e-3, 0, ""),
    ("one query, ms", "search", "one seconds", 1e-3, 1, "30"),
    ("the same, of processors", "search", "one processor", 1e-3, 1, ""),
    ("all queries at once, s", "search", "all seconds", 1, 1, ""),
    (f"recall@{NEIGHBORS}", "search", "recall", 1, 3, "0.95"),
    ("memory to search, GB", "search", "memory", 1, 1, ""),
    ("of it not mapped, GB", "search", "own_memory", 1, 1, ""),
    ("delete 1 %, s", "change", "delete seconds", 1, 1, ""),
    ("replace 1 %, s", "change", "upsert seconds", 1, 1, ""),
    ("recall after", "change", "recall", 1, 3, "0.95"),
    ("load of the machine in searches", "search", "all load", 1, 0, ""),
)


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
    rows: int = 0
    """Rows of a gallery in shards, which is built, saved, searched and changed;
    a multiple of 100,000."""
    features: Path | None = None
    folder: Path | None = None
    """Keeps shards, indexes and what was measured; `None`: a temporary one."""
    engines: tuple[str, ...] = ("exact", "faiss", "scann", "milvus")
    """Engines of this gallery."""

    SMALL = {
        **{"sizes": (1000,), "scored": (1200,), "embedding_size": 16},
        **{"num_queries": 20, "repeats": 1, "rows": 4000},
        **{"indexes": ("faiss Flat", "ExactIndex")},
        "engines": ("exact", "faiss"),
    }

    @property
    def shard_rows(self) -> int:
        """Rows of a shard."""
        return min(100_000, self.rows // 4)


class Drawn:
    """Unit vectors of many classes, with the spectrum of real ones.

    Centers of classes have the covariance of the centers of real classes. The
    items of each vary as those of a real class, drawn with the class.
    """

    def __init__(
        self, features: Path | None, num_classes: int, size: int
    ) -> None:
        rng = np.random.default_rng(0)
        if features is None:
            spread = np.diag(1 / np.sqrt(1 + np.arange(size)))
            means, self.residuals = spread * np.sqrt(size), [spread]
        else:
            means, self.residuals = class_moments(features, size)
        mix = rng.standard_normal((num_classes, len(means)), "float32")
        self.centers = mix @ (means / np.sqrt(len(means))).astype("float32")
        self.like = rng.integers(0, len(self.residuals), num_classes)

    def rows(self, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows (count, size), and their classes (count,), in turn."""
        rng = np.random.default_rng([1, seed])
        classes = np.arange(count) % len(self.centers)
        rows = self.centers[classes]
        for real, residuals in enumerate(self.residuals):
            chosen = np.flatnonzero(self.like[classes] == real)
            mix = rng.standard_normal((len(chosen), len(residuals)), "float32")
            rows[chosen] += mix @ residuals.astype("float32")
        return rows / np.linalg.norm(rows, axis=1, keepdims=True), classes


def class_moments(features: Path, size: int) -> tuple[np.ndarray, list]:
    """Means of real classes, and roots of the covariance inside each.

    Of the features' first `size` principal components.
    """
    with np.load(features) as arrays:
        labels = arrays["labels"]
        name = next(n for n in arrays.files if arrays[n].ndim == 2)
        rows = arrays[name].astype("float64")
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows -= rows.mean(axis=0)
    rows = rows @ np.linalg.svd(rows, full_matrices=False)[2][:size].T
    groups = [rows[labels == label] for label in np.unique(labels)]
    means = np.array([group.mean(axis=0) for group in groups])
    residuals = [
        (group - mean) / np.sqrt(len(group))
        for group, mean in zip(groups, means, strict=True)
    ]
    return means, residuals


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
            nearest = ops.top_k(products - half_squares, most)
            ops.convert_to_numpy(nearest[1])

    return search


def scores(rows: np.ndarray, labels: np.ndarray) -> Callable:
    """`gsp.metrics.retrieval_scores`."""
    import keras_gsp as gsp

    return lambda: gsp.metrics.retrieval_scores(rows, labels)["map_at_r"]


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
}


def run_contender(build: Callable, path: str, repeats: int) -> dict[str, Any]:
    """Builds and runs on a part to load libraries, then on all."""
    with np.load(path) as file:
        arrays = dict(file)
    build(**{name: values[:1000] for name, values in arrays.items()})()
    run, built = timed(partial(build, **arrays))
    runs = [timed(run) for _ in range(repeats)]
    return {
        "built": built["seconds"],
        "seconds": [facts["seconds"] for _, facts in runs],
        "returned": runs[-1][0],
    }


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
                runs[name] = report.in_own_process(
                    run_contender, build, path, repeats
                )
            except LEFT_OUT as error:
                tqdm.write(f"{name}: left out: {error}")
    return runs


def write_shards(settings: Settings, root: Path) -> None:
    """Writes shards, queries and their true neighbors."""
    import faiss

    folder, size = root / "shards", settings.embedding_size
    folder.mkdir(parents=True, exist_ok=True)
    drawn = Drawn(settings.features, settings.rows // CLASS_ROWS, size)
    queries, _ = drawn.rows(settings.num_queries, 2**31)
    near = np.zeros((2, len(queries), 0))
    shards, truths = [], {}
    for number in tqdm(range(settings.rows // settings.shard_rows)):
        start = number * settings.shard_rows
        rows, classes = drawn.rows(settings.shard_rows, number)
        texts = [
            {"id": f"{label}/{start + row:09d}.jpg", "label": label}
            | {"version": ""}
            for row, label in enumerate(map("{:06d}".format, classes.tolist()))
        ]
        name = shard_name(number)
        write_shard(folder / name, texts, rows, [OK] * len(rows))
        shards.append({"file": name, "rows": len(rows)})
        squares, indices = faiss.knn(queries, rows, NEIGHBORS)
        near = np.concatenate([near, [squares, indices + start]], axis=2)
        order = np.argsort(near[0], axis=1)[None, :, :NEIGHBORS]
        near = np.take_along_axis(near, np.repeat(order, 2, axis=0), axis=2)
        truths[str(start + len(rows))] = near[1].astype("int64")
    manifest = {"num_images": settings.rows, "shards": shards}
    (folder / MANIFEST).write_text(json.dumps(manifest))
    wanted = {str(num_rows(engine, settings)) for engine in NAMES}
    truths = {name: truths[name] for name in wanted}
    np.savez(root / "queries.npz", queries=queries, **truths)


def num_rows(engine: str, settings: Settings) -> int:
    """Rows that an engine holds."""
    is_limited = engine in ("scann", "milvus")
    return min(LIMIT, settings.rows) if is_limited else settings.rows


def opened(
    engine: str, settings: Settings, folder: Path, shards: Any = None
) -> Any:
    """Builds an index of shards, or loads it without any."""
    from keras_gsp import retrieval

    path = folder / engine
    if engine == "milvus":
        index = retrieval.MilvusIndex(f"{path}/items.db", "items")
        for shard in shards or ():
            index.upsert(*shard)
        if shards is not None:
            index.build()
        return index
    index_class: Any = getattr(retrieval, f"{engine.title()}Index")
    if shards is None:
        return index_class.load(path, mmap=True)
    if engine == "faiss":
        lists = min(1024, settings.rows // 500)
        return index_class.from_index(
            retrieval.ExactIndex.load(folder / "exact", mmap=True),
            factory=f"RR{settings.embedding_size},IVF{lists},RaBitQ",
            parameters="nprobe=98",
            rescore=1000,
        )
    return index_class.from_shards(shards, storage="float16")


def build(engine: str, settings: Settings, folder: Path) -> dict[str, Any]:
    """Builds and saves an index."""
    warm_up(engine)
    shards = read_embeddings(folder / "shards")
    count = num_rows(engine, settings) // settings.shard_rows
    path = folder / engine
    facts: dict[str, Any] = {}
    index, facts["build"] = timed(
        lambda: opened(engine, settings, folder, islice(shards, count))
    )
    facts["build_memory"] = memory("VmHWM")
    if engine != "milvus":
        _, facts["save"] = timed(lambda: index.save(path, overwrite=True))
    files = [file for file in path.rglob("*") if file.is_file()]
    facts["disk"] = sum(file.stat().st_size for file in files) / 1e9
    return facts


def warm_up(engine: str) -> None:
    """Imports what an engine needs."""
    from keras_gsp import retrieval

    retrieval.ExactIndex(np.eye(4)).search(np.eye(4), 1)
    if engine in LIBRARIES:
        importlib.import_module(LIBRARIES[engine])


def search(engine: str, settings: Settings, folder: Path) -> dict[str, Any]:
    """Loads and searches an index."""
    warm_up(engine)
    with np.load(folder / "queries.npz") as arrays:
        queries = arrays["queries"]
        truth = arrays[str(num_rows(engine, settings))]
    if engine == "milvus":  # seconds for each
        queries, truth = queries[:20], truth[:20]
    facts: dict[str, Any] = {}
    index, facts["load"] = timed(lambda: opened(engine, settings, folder))
    _, facts["first"] = timed(lambda: index.search(queries[-1], NEIGHBORS))
    singles = [
        timed(partial(index.search, row, NEIGHBORS))[1]
        for row in queries[: 5 if engine in ("exact", "milvus") else SINGLE]
    ]
    facts["one"] = {
        name: np.median([facts[name] for facts in singles])
        for name in ("seconds", "processor")
    }
    near, facts["all"] = timed(lambda: index.search(queries, NEIGHBORS))
    rows = [[int(x[-13:-4] or -1) for x in row] for row in near.ids.tolist()]
    facts["recall"] = share_found(rows, truth)
    facts["memory"], facts["own_memory"] = memory("VmHWM"), memory("RssAnon")
    return facts


def change(engine: str, settings: Settings, folder: Path) -> dict[str, Any]:
    """Deletes and replaces 1 % of the rows each."""
    from keras_gsp.retrieval.index.search_recall import exact_copy

    with np.load(folder / "queries.npz") as arrays:
        queries = arrays["queries"][:SINGLE]
    first, second = islice(read_embeddings(folder / "shards"), 2)
    count = min(num_rows(engine, settings) // 100, settings.shard_rows)
    index = opened(engine, settings, folder)
    size, num_classes = queries.shape[1], settings.rows // CLASS_ROWS
    rows, _ = Drawn(settings.features, num_classes, size).rows(count, 2**31 + 1)
    _, deleted = timed(lambda: index.delete(first[2][:count]))
    changed = [values[:count] for values in second[1:]]
    _, upserted = timed(lambda: index.upsert(rows, *changed))
    near = index.search(queries, NEIGHBORS).ids.tolist()
    true = exact_copy(index).search(queries, NEIGHBORS).ids
    recall = share_found(near, true)
    return {"delete": deleted, "upsert": upserted, "recall": recall}


def share_found(near: Any, truth: np.ndarray) -> float:
    """Recall of lists of neighbors."""
    pairs = zip(near, truth, strict=True)
    return float(np.mean([np.isin(true, row).mean() for row, true in pairs]))


def timed(call: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """What a call returns, its seconds, and those of all processors."""
    start, processor = time.perf_counter(), time.process_time()
    returned = call()
    seconds = time.perf_counter() - start
    processor = time.process_time() - processor
    load = os.getloadavg()[0]
    return returned, {"seconds": seconds, "processor": processor, "load": load}


def memory(name: str) -> float:
    """A number of Linux about this process, in GB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    words = next(line.split() for line in lines if line.startswith(name))
    return int(words[1]) * 1024 / 1e9


def measure(settings: Settings) -> Iterator[Table]:
    """Yields a table for each size, and one of the gallery in shards."""
    size, num_queries = settings.embedding_size, settings.num_queries
    for count in settings.sizes:
        drawn = Drawn(None, count // 5, size)
        runs = compared(
            {name: INDEXES[name] for name in settings.indexes or INDEXES},
            settings.repeats,
            gallery=drawn.rows(count, 1)[0],
            queries=drawn.rows(num_queries, 2)[0],
        )
        true = runs["faiss Flat" if "faiss Flat" in runs else "ExactIndex"]
        times = {}
        for name, run in runs.items():
            recall = share_found(run["returned"], true["returned"])
            facts = {
                "queries/s": f"{num_queries / np.median(run['seconds']):,.0f}",
                "built in": f"{run['built']:.2f} s",
                "recall": f"{recall:.4f}",
            }
            times[name] = run["seconds"], facts
        title = (
            f"{num_queries:,} queries, {NEIGHBORS} neighbors among "
            f"{count:,} x {size}"
        )
        yield ratio_table(times, title)
    for count in settings.scored:
        rows, labels = Drawn(None, count // 5, size).rows(count, 0)
        runs = compared(CALCULATORS, settings.repeats, rows=rows, labels=labels)
        times = {}
        for name, run in runs.items():
            score = run["returned"]
            facts = {} if score is None else {"MAP@R": f"{score:.8f}"}
            times[name] = run["seconds"], facts
        title = f"Scores of {count:,} embeddings of {size} numbers"
        yield ratio_table(times, title)
    if settings.rows:
        with tempfile.TemporaryDirectory() as temporary:
            yield of_engines(settings, settings.folder or Path(temporary))


def of_engines(settings: Settings, folder: Path) -> Table:
    """Measures each phase and engine in a process of its own, once."""
    if not (folder / "queries.npz").exists():
        report.in_own_process(write_shards, settings, folder)
    facts: dict[str, Any] = {engine: {} for engine in settings.engines}
    for phase in (build, search, change):
        for engine in facts:
            path = folder / f"{engine}.{phase.__name__}.json"
            if not path.exists():
                measured = report.in_own_process(
                    phase, engine, settings, folder
                )
                path.write_text(json.dumps(measured, indent=1))
            facts[engine][phase.__name__] = json.loads(path.read_text())
    rows = [["rows", *(f"{num_rows(e, settings):,}" for e in facts), ""]]
    for name, phase_name, keys, scale, digits, aim in MEASURES:
        cells = []
        for engine in facts:
            value: Any = facts[engine][phase_name]
            for key in keys.split():
                value = value.get(key, {})
            cells.append(f"{value / scale:.{digits}f}" if value else "")
        rows.append([name, *cells, aim])
    return Table(["", *(NAMES[engine] for engine in facts), "aim"], rows)


if __name__ == "__main__":
    report.run_measurement(sys.modules[__name__])
