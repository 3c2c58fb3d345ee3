"""One way to search a gallery, measured in a process of its own.

Started by training.benchmarks.retrieval, perhaps under another interpreter:
nothing but NumPy is imported before the contender is known. Prints seconds,
growth of memory and the name of the file of found positions as JSON.
"""

import json
import resource
import sys
import time

import numpy as np


def gsp_exact(gallery):
    """`ExactIndex`."""
    import keras_gsp as gsp

    index = gsp.retrieval.ExactIndex(gallery)
    return lambda queries, k: index.search(queries, k).indices


def gsp_scann(gallery):
    """`ScannIndex` with its automatic settings."""
    import keras_gsp as gsp

    index = gsp.retrieval.ScannIndex(gallery)
    return lambda queries, k: index.search(queries, k).indices


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
    index.hnsw.efSearch = 64
    index.add(gallery)
    return lambda queries, k: index.search(queries, k)[1]


CONTENDERS = {
    "ExactIndex": gsp_exact,
    "ScannIndex": gsp_scann,
    "NumPy": numpy_exact,
    "faiss flat": faiss_exact,
    "faiss HNSW": faiss_hnsw,
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
    seconds = []
    for _ in range(int(repeats)):
        start = time.perf_counter()
        found = search(queries, int(k))
        seconds.append(time.perf_counter() - start)
    file = f"{folder}/{name}.npy"
    np.save(file, found)
    report = {
        "build_seconds": build_seconds,
        "seconds": seconds,
        "growth_mb": peak_megabytes() - before,
        "found": file,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
