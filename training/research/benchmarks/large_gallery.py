"""What a gallery of ten million embeddings costs on one machine.

    python -m training.research.benchmarks.large_gallery --features birds.npz --folder FOLDER --json docs/results/large_gallery.json

Rows are unit vectors with the spectrum of real embeddings, a hundred of a class on
average: the centers of classes have the covariance of those of real classes, and each
class varies as a real one, all reduced to 128 principal components. Without
`--features`, an `.npz` with `labels` and a matrix, coordinate k has a deviation of
1 / sqrt(k) between classes and inside them. They are Parquet shards as
`training.embed` writes them, with strings as ids and labels.

Each engine builds shard by shard, saves, is loaded with `mmap=True` by another
process, and searched for rows of the same classes that it does not hold. faiss's build
begins with the saved exact index, which stays on disk; its minutes come on top. Memory
is the peak of resident pages, pages of mapped files among them. The truth is the exact
search in float32. Then 1 % of the rows are deleted and 1 % replaced, without a
rebuild; "recall after" is that of 100 queries, beside the exact search in the changed
index.

ScaNN keeps float32 rows twice while it builds, and Milvus Lite inserts slowly:
both hold the first `--limit` rows, and Milvus Lite answers 20 of the queries. Phases and engines may be run apart with
`--folder`; those of the table were, beside other work on the machine.
"""

import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
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
from training.research.report import Table

LIBRARIES = {"faiss": "faiss", "scann": "scann", "milvus": "pymilvus"}
NEIGHBORS, CLASS_ROWS, SINGLE = 10, 100, 100
NAMES = {
    "exact": "exact, float16",
    "faiss": "faiss, codes",
    "scann": "ScaNN",
    "milvus": "Milvus Lite",
}


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

    rows: int = 1_000_000
    """Rows of the gallery, a multiple of those of a shard."""
    limit: int = 1_000_000
    """Rows of ScaNN and Milvus Lite."""
    shard_rows: int = 100_000
    embedding_size: int = 128
    num_queries: int = 1000
    features: Path | None = None
    folder: Path | None = None
    """Keeps shards, indexes and what was measured; `None`: a temporary one."""
    engines: tuple[str, ...] = ("exact", "faiss", "scann", "milvus")
    phases: tuple[str, ...] = ("shards", "build", "search", "change")
    """What to do now; the table has what was measured before, too."""
    factory: str = "RR128,IVF1024,RaBitQ"
    parameters: str = "nprobe=98"
    rescore: int = 1000

    SMALL = {
        **{"rows": 4000, "limit": 2000, "shard_rows": 1000},
        **{"embedding_size": 16, "num_queries": 20, "factory": "IVF8,RaBitQ"},
        **{"parameters": "nprobe=4", "engines": ("exact", "faiss")},
    }


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
        """Rows (count, size), and their classes (count,)."""
        rng = np.random.default_rng([1, seed])
        classes = rng.integers(0, len(self.centers), count)
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
        name = next(one for one in arrays.files if arrays[one].ndim == 2)
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
    wanted = {str(settings.rows), str(settings.limit)}
    truths = {name: truths[name] for name in wanted}
    np.savez(root / "queries.npz", queries=queries, **truths)


def num_rows(engine: str, settings: Settings) -> int:
    """Rows that an engine holds."""
    is_limited = engine in ("scann", "milvus")
    return settings.limit if is_limited else settings.rows


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
        names = "factory", "parameters", "rescore"
        options = {name: getattr(settings, name) for name in names}
        items = retrieval.ExactIndex.load(folder / "exact", mmap=True)
        return index_class.from_index(items, **options)
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
        name: np.median([one[name] for one in singles])
        for name in ("seconds", "processor")
    }
    near, facts["all"] = timed(lambda: index.search(queries, NEIGHBORS))
    rows = [
        [int(one[-13:-4] or -1) for one in row] for row in near.ids.tolist()
    ]
    facts["recall"] = share_found(rows, truth)
    facts["memory"], facts["own_memory"] = memory("VmHWM"), memory("RssAnon")
    return facts


def change(engine: str, settings: Settings, folder: Path) -> dict[str, Any]:
    """Deletes and replaces 1 % of the rows each."""
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
    true = index.search_exactly(queries, NEIGHBORS).ids
    recall = share_found(near, true)
    return {"delete": deleted, "upsert": upserted, "recall": recall}


def share_found(near: Any, truth: np.ndarray) -> float:
    """Recall of lists of neighbors."""
    pairs = zip(near, truth, strict=True)
    return float(np.mean([np.isin(true, own).mean() for own, true in pairs]))


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
    """Yields what the phases have measured."""
    with tempfile.TemporaryDirectory() as temporary:
        yield table(settings, settings.folder or Path(temporary))


def table(settings: Settings, folder: Path) -> Table:
    """Measures phases, each engine in a process of its own: a column each."""
    steps = {"build": build, "search": search, "change": change}
    for phase in settings.phases:
        if phase == "shards":
            report.in_own_process(write_shards, settings, folder)
            continue
        for engine in settings.engines:
            measured = report.in_own_process(
                steps[phase], engine, settings, folder
            )
            path = folder / f"{engine}.{phase}.json"
            path.write_text(json.dumps(measured, indent=1))
    facts: dict[str, Any] = {}
    for path in folder.glob("*.*.json"):
        engine, phase, _ = path.name.split(".")
        facts.setdefault(engine, {})[phase] = json.loads(path.read_text())
    engines = [engine for engine in NAMES if engine in facts]
    rows = [["rows", *(f"{num_rows(e, settings):,}" for e in engines), ""]]
    for name, phase, keys, scale, digits, aim in MEASURES:
        cells = []
        for engine in engines:
            value: Any = facts[engine].get(phase, {})
            for key in keys.split():
                value = value.get(key, {})
            cells.append(f"{value / scale:.{digits}f}" if value else "")
        rows.append([name, *cells, aim])
    return Table(["", *(NAMES[engine] for engine in engines), "aim"], rows)


if __name__ == "__main__":
    report.run_measurement(sys.modules[__name__])
