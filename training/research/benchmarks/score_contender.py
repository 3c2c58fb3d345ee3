"""One run of a contender of `evaluation`, in a process of its own.

Arguments: `plain`, `scores` or `gallery`, and the file of embeddings. Prints
seconds, growth of memory and MAP@R as JSON. `plain` is exact search written by
hand in TensorFlow: for each block of queries a product with the gallery, then
`tf.math.top_k` for as many neighbors as the scores need. `gallery` scores
against a copy of the embeddings as a separate gallery.
"""

import json
import resource
import sys
import time

import numpy as np
import tensorflow as tf

import keras_gsp as gsp

# Products of one block of queries: 64 MB, as in keras_gsp.
BLOCK_NUMBERS = 2**24


def peak_megabytes() -> float:
    """Returns the process's largest resident memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def search(embeddings: np.ndarray, num_neighbors: int) -> np.ndarray:
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
    kind, path = sys.argv[1:3]
    with np.load(path) as arrays:
        embeddings, labels = arrays["embeddings"], arrays["labels"]
    gallery = {}
    if kind == "gallery":
        gallery = {
            "gallery_embeddings": embeddings.copy(),
            "gallery_labels": labels,
        }
    num_neighbors = max(int(np.bincount(labels).max()), 9)
    if kind == "plain":
        search(embeddings[:1000], num_neighbors)
    else:
        gsp.metrics.retrieval_scores(embeddings[:1000], np.arange(1000) // 4)
    before = peak_megabytes()
    start = time.perf_counter()
    report = {}
    if kind == "plain":
        search(embeddings, num_neighbors)
    else:
        scores = gsp.metrics.retrieval_scores(embeddings, labels, **gallery)
        report["map_at_r"] = scores["map_at_r"]
    report["seconds"] = time.perf_counter() - start
    report["growth_mb"] = peak_megabytes() - before
    print(json.dumps(report))


if __name__ == "__main__":
    main()
