"""One way to search a gallery, measured in its own process.

`benchmarks.retrieval` starts it. It imports only NumPy and the contender's
engine. Prints seconds, growth of memory and the file of found positions as
JSON.
"""

import json
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

# Rows of a gallery that are looked at or added at once.
BLOCK = 2**16


def gsp_exact(gallery: Any, storage: str = "float32") -> Any:
    """`ExactIndex`."""
    import keras_gsp as gsp

    index = gsp.retrieval.ExactIndex(gallery, storage=storage)
    return lambda queries, k: index.search(queries, k).indices


def gsp_half(gallery: Any) -> Any:
    """`ExactIndex` in float16."""
    return gsp_exact(gallery, "float16")


def gsp_quarter(gallery: Any) -> Any:
    """`ExactIndex` in int8."""
    return gsp_exact(gallery, "int8")


def gsp_mapped(gallery: Any) -> Any:
    """`ExactIndex` in float16, read from the disk."""
    import tempfile

    import keras_gsp as gsp

    folder = tempfile.TemporaryDirectory()
    path = f"{folder.name}/index"
    whole = gsp.retrieval.ExactIndex(storage="float16")
    for start in range(0, len(gallery), BLOCK):
        whole.add(gallery[start : start + BLOCK])
    whole.save(path)
    del whole
    index = gsp.retrieval.ExactIndex.load(path, mmap=True)

    def search(queries, k, _folder=folder):
        return index.search(queries, k).indices

    return search


def gsp_scann(gallery: Any) -> Any:
    """`ScannIndex` with its automatic settings."""
    import keras_gsp as gsp

    index = gsp.retrieval.ScannIndex(gallery)
    return lambda queries, k: index.search(queries, k).indices


def gsp_milvus(gallery: Any) -> Any:
    """`MilvusIndex`, embedded, with its HNSW graph."""
    import tempfile

    import keras_gsp as gsp

    folder = tempfile.TemporaryDirectory()
    index = gsp.retrieval.MilvusIndex(f"{folder.name}/gallery.db", "items")
    for start in range(0, len(gallery), 10_000):
        rows = gallery[start : start + 10_000]
        index.upsert(rows, None, np.arange(start, start + len(rows)))
    index.build()

    def search(queries, k, _folder=folder):
        return index.search(queries, k).ids

    return search


def faiss_exact(gallery: Any) -> Any:
    """Search with faiss IndexFlatL2."""
    import faiss

    index = faiss.IndexFlatL2(gallery.shape[1])
    index.add(gallery)
    return lambda queries, k: index.search(queries, k)[1]


def faiss_hnsw(gallery: Any) -> Any:
    """Search with faiss IndexHNSWFlat with 32 links, 64 candidates."""
    import faiss

    index = faiss.IndexHNSWFlat(gallery.shape[1], 32)
    index.hnsw.efConstruction = 200
    index.hnsw.efSearch = 64
    index.add(gallery)
    return lambda queries, k: index.search(queries, k)[1]


CONTENDERS = {
    "faiss flat": faiss_exact,
    "ExactIndex": gsp_exact,
    "ExactIndex float16": gsp_half,
    "ExactIndex int8": gsp_quarter,
    "ExactIndex float16 on disk": gsp_mapped,
    "ScannIndex": gsp_scann,
    "MilvusIndex embedded": gsp_milvus,
    "faiss HNSW": faiss_hnsw,
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
