"""One way to search a gallery, measured in its own process.

`benchmarks.retrieval` starts it. It imports only NumPy and the contender's
engine. Prints seconds, growth of memory and the file of found positions as
JSON.
"""

import importlib
import json
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

# Finds the positions (queries, k) of the nearest rows.
Search = Callable[[np.ndarray, int], np.ndarray]


def indexed(name: str, **options: Any) -> Callable[[np.ndarray], Search]:
    """Returns a function that builds an index in memory."""

    def build(gallery):
        import keras_gsp as gsp

        index = getattr(gsp.retrieval, name)(gallery, **options)
        return lambda queries, k: index.search(queries, k).indices

    return build


def on_disk(gallery: np.ndarray) -> Search:
    """`ExactIndex` in float16, read from the disk."""
    import keras_gsp as gsp

    folder = tempfile.TemporaryDirectory()
    path = f"{folder.name}/index"
    gsp.retrieval.ExactIndex(gallery, storage="float16").save(path)
    index = gsp.retrieval.ExactIndex.load(path, mmap=True)

    def search(queries, k, _folder=folder):
        return index.search(queries, k).indices

    return search


def milvus(gallery: np.ndarray) -> Search:
    """`MilvusIndex`, embedded, with its HNSW graph."""
    import keras_gsp as gsp

    folder = tempfile.TemporaryDirectory()
    index = gsp.retrieval.MilvusIndex(f"{folder.name}/gallery.db", "items")
    index.upsert(gallery, None, np.arange(len(gallery)))
    index.build()

    def search(queries, k, _folder=folder):
        return index.search(queries, k).ids

    return search


def faiss_alone(
    factory: str, parameters: str | None = None
) -> Callable[[np.ndarray], Search]:
    """Returns a function that builds an index with faiss alone."""

    def build(gallery):
        faiss: Any = importlib.import_module("faiss")

        index = faiss.index_factory(gallery.shape[1], factory)
        index.train(gallery)
        index.add(gallery)
        if parameters is not None:
            faiss.ParameterSpace().set_index_parameters(index, parameters)
        return lambda queries, k: index.search(queries, k)[1]

    return build


CLUSTERS = {"factory": "IVF256,Flat", "parameters": "nprobe=32"}
GRAPH = {"factory": "HNSW32", "parameters": "efSearch=64"}
CONTENDERS = {
    "faiss Flat": faiss_alone("Flat"),
    "ExactIndex": indexed("ExactIndex"),
    "ExactIndex float16": indexed("ExactIndex", storage="float16"),
    "ExactIndex int8": indexed("ExactIndex", storage="int8"),
    "ExactIndex float16 on disk": on_disk,
    "FaissIndex Flat": indexed("FaissIndex"),
    "FaissIndex IVF": indexed("FaissIndex", **CLUSTERS),
    "FaissIndex HNSW": indexed("FaissIndex", **GRAPH),
    "FaissIndex binary": indexed("FaissIndex", factory="LSHr"),
    "FaissIndex RaBitQ": indexed("FaissIndex", factory="RaBitQ"),
    "FaissIndex IVF RaBitQ": indexed(
        "FaissIndex", factory="IVF256,RaBitQ", parameters="nprobe=32"
    ),
    "faiss HNSW": faiss_alone(**GRAPH),
    "ScannIndex": indexed("ScannIndex"),
    "MilvusIndex embedded": milvus,
}

# Bytes of each number, and of an item besides: of the engine, whose codes or
# vectors a search reads, and of the vectors for the exact distances, which
# `load(path, mmap=True)` leaves on the disk.
BYTES = {
    "faiss Flat": ((4, 0), (0, 0)),
    "ExactIndex": ((0, 0), (4, 0)),
    "ExactIndex float16": ((0, 0), (2, 0)),
    "ExactIndex int8": ((0, 0), (1, 4)),
    "ExactIndex float16 on disk": ((0, 0), (2, 0)),
    "FaissIndex Flat": ((4, 0), (4, 0)),
    "FaissIndex IVF": ((4, 8), (4, 0)),
    "FaissIndex HNSW": ((4, 256), (4, 0)),
    "FaissIndex binary": ((1 / 8, 0), (4, 0)),
    "FaissIndex RaBitQ": ((1 / 8, 8), (4, 0)),
    "FaissIndex IVF RaBitQ": ((1 / 8, 16), (4, 0)),
    "faiss HNSW": ((4, 256), (0, 0)),
}


class Memory:
    """The largest memory of this process, looked at fifty times a second.

    Pages of files that are mapped are not counted: the system takes them back
    whenever it wants. Elsewhere than on Linux they are.
    """

    def __init__(self) -> None:
        self.peak = self._now()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self):
        while True:
            self.peak = max(self.peak, self._now())
            time.sleep(0.02)

    def _now(self):
        try:
            with open("/proc/self/status") as file:
                for line in file:
                    if line.startswith("RssAnon"):
                        return int(line.split()[1]) / 1024
        except OSError:
            pass
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Builds on a small part to load libraries, then on all, and searches."""
    name, folder, k, repeats = sys.argv[1:]
    path = Path(folder, "gallery.npy")
    gallery = np.load(path)
    queries = np.load(f"{folder}/queries.npy")
    CONTENDERS[name](gallery[:1000])(queries[:10], int(k))
    memory = Memory()
    before = memory.peak
    start = time.perf_counter()
    search = CONTENDERS[name](gallery)
    build_seconds = time.perf_counter() - start
    seconds, busy = [], []
    for _ in range(int(repeats)):
        start, start_busy = time.perf_counter(), time.process_time()
        found = search(queries, int(k))
        seconds.append(time.perf_counter() - start)
        busy.append(time.process_time() - start_busy)
    single = []
    for query in queries[:20]:
        start = time.perf_counter()
        search(query[None], int(k))
        single.append(time.perf_counter() - start)
    file = f"{folder}/{name}.npy"
    np.save(file, found)
    report = {
        "build_seconds": build_seconds,
        "seconds": seconds,
        "busy_seconds": busy,
        "single_seconds": single,
        "growth_mb": memory.peak - before,
        "found": file,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
