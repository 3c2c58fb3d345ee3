"""One way to search a gallery, measured in a process of its own.

Started by training.benchmarks.retrieval; nothing but NumPy is imported before
the contender is known. Prints seconds, growth of memory and the name of the
file of found positions as JSON.
"""

import json
import resource
import sys
import time

import numpy as np


def gsp_exact(gallery, storage="float32"):
    """`ExactIndex`."""
    import keras_gsp as gsp

    index = gsp.retrieval.ExactIndex(gallery, storage=storage)
    return lambda queries, k: index.search(queries, k).indices


def gsp_half(gallery):
    """`ExactIndex` in float16."""
    return gsp_exact(gallery, "float16")


def gsp_quarter(gallery):
    """`ExactIndex` in int8."""
    return gsp_exact(gallery, "int8")


def gsp_mapped(gallery):
    """`ExactIndex` in float16, read from the disk."""
    import tempfile

    import keras_gsp as gsp

    folder = tempfile.TemporaryDirectory()
    path = f"{folder.name}/index"
    gsp.retrieval.ExactIndex(gallery, storage="float16").save(path)
    index = gsp.retrieval.ExactIndex.load(path, mmap=True)

    def search(queries, k, _folder=folder):
        return index.search(queries, k).indices

    return search


def gsp_scann(gallery):
    """`ScannIndex` with its automatic settings."""
    import keras_gsp as gsp

    index = gsp.retrieval.ScannIndex(gallery)
    return lambda queries, k: index.search(queries, k).indices


def gsp_milvus(gallery):
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


def numpy_exact(gallery):
    """A product, a partition and a sort in NumPy, 64 queries at a time."""
    halves = np.sum(np.square(gallery), axis=1) / 2

    def search(queries, k):
        found = []
        for start in range(0, len(queries), 64):
            block = queries[start : start + 64]
            remoteness = halves - block @ gallery.T
            near = np.argpartition(remoteness, k, axis=1)[:, :k]
            order = np.take_along_axis(remoteness, near, axis=1).argsort(axis=1)
            found.append(np.take_along_axis(near, order, axis=1))
        return np.concatenate(found)

    return search


def faiss_exact(gallery):
    """Search with faiss IndexFlatL2."""
    import faiss

    index = faiss.IndexFlatL2(gallery.shape[1])
    index.add(gallery)
    return lambda queries, k: index.search(queries, k)[1]


def faiss_hnsw(gallery):
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
    "NumPy": numpy_exact,
}


def peak_megabytes():
    """Returns the process's largest resident memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main():
    """Builds on a small part to load libraries, then on all, and searches."""
    name, folder, k, repeats = sys.argv[1:]
    gallery = np.load(f"{folder}/gallery.npy")
    queries = np.load(f"{folder}/queries.npy")
    CONTENDERS[name](gallery[:1000])(queries[:10], int(k))
    before = peak_megabytes()
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
        "growth_mb": peak_megabytes() - before,
        "found": file,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
