"""One run of a plain exact search in a process of its own.

Started by training.research.benchmarks.evaluation with the file of embeddings; prints
seconds and growth of memory as JSON. In TensorFlow, by blocks of queries: a
product with the whole gallery, then `tf.math.top_k` for as many neighbors as
the scores need.
"""

import json
import resource
import sys
import time
from typing import Any

import numpy as np
import tensorflow as tf

# Products of one block of queries: 64 MB, as in keras_gsp.
BLOCK_NUMBERS = 2**24


def peak_megabytes() -> float:
    """Returns the process's largest resident memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def search(embeddings: Any, num_neighbors: int) -> Any:
    """Returns the nearest items of each, (items, num_neighbors)."""
    gallery = tf.constant(embeddings.T)
    half_squares = tf.reduce_sum(tf.square(gallery), axis=0) / 2
    rows = max(1, min(1024, BLOCK_NUMBERS // len(embeddings)))
    found = []
    for start in range(0, len(embeddings), rows):
        products = tf.matmul(embeddings[start : start + rows], gallery)
        nearest = tf.math.top_k(products - half_squares, num_neighbors)
        found.append(nearest.indices.numpy())
    return np.concatenate(found)


def main() -> None:
    """Warms up on a small part, then measures."""
    with np.load(sys.argv[1]) as arrays:
        embeddings, labels = arrays["embeddings"], arrays["labels"]
    num_neighbors = max(int(np.bincount(labels).max()), 9)
    search(embeddings[:1000], num_neighbors)
    before = peak_megabytes()
    start = time.perf_counter()
    search(embeddings, num_neighbors)
    seconds = time.perf_counter() - start
    report = {"seconds": seconds, "growth_mb": peak_megabytes() - before}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
