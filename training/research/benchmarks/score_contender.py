"""One timed run of a contender of `evaluation`, in its own process.

Arguments: `plain`, `scores`, `gallery` or `pml`, and the file of embeddings.
Prints seconds, growth of memory and MAP@R as JSON. `plain` is exact search
written by hand in TensorFlow, `tf.math.top_k` of a product of each block of
queries with the gallery. `gallery` scores against a copy of the embeddings as
a separate gallery. `pml` is pytorch-metric-learning's accuracy calculator,
under an interpreter that has it; it searches with faiss where installed.
"""

import importlib.util
import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

# Products of one block of queries: 64 MB, as in keras_gsp.
BLOCK_NUMBERS = 2**24
Scorer = Callable[[np.ndarray, np.ndarray], float | None]


def peak_megabytes() -> float:
    """Returns the process's largest resident memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def search(embeddings: np.ndarray, num_neighbors: int) -> np.ndarray:
    """Returns the nearest items of each, (items, num_neighbors)."""
    import tensorflow as tf

    gallery = tf.constant(embeddings.T)
    half_squares = tf.reduce_sum(tf.square(gallery), axis=0) / 2
    rows = max(1, min(1024, BLOCK_NUMBERS // len(embeddings)))
    found = []
    for start in range(0, len(embeddings), rows):
        products = tf.matmul(embeddings[start : start + rows], gallery)
        nearest = tf.math.top_k(products - half_squares, num_neighbors)
        found.append(nearest.indices.numpy())
    return np.concatenate(found)


def plain(embeddings: np.ndarray, labels: np.ndarray) -> None:
    """Searches as many neighbors as scores need, and scores nothing."""
    search(embeddings, max(int(np.bincount(labels).max()), 9))


def ours(kind: str) -> Scorer:
    """`gsp.metrics.retrieval_scores`, with a separate gallery or without."""
    import keras_gsp as gsp

    def score(embeddings, labels):
        gallery: dict[str, Any] = {}
        if kind == "gallery":
            gallery["gallery_embeddings"] = embeddings.copy()
            gallery["gallery_labels"] = labels
        found = gsp.metrics.retrieval_scores(embeddings, labels, **gallery)
        return found["map_at_r"]

    return score


def pytorch_metric_learning() -> Scorer:
    """That library's calculator with the scores that keras_gsp computes."""
    import torch
    from pytorch_metric_learning.distances import LpDistance
    from pytorch_metric_learning.utils.accuracy_calculator import (
        AccuracyCalculator,
    )
    from pytorch_metric_learning.utils.inference import CustomKNN

    knn = None
    if importlib.util.find_spec("faiss") is None:
        distance = LpDistance(normalize_embeddings=False)
        knn = CustomKNN(distance, batch_size=256)
    names = "precision_at_1", "r_precision", "mean_average_precision_at_r"
    calculator = AccuracyCalculator(
        include=names,
        k="max_bin_count",
        device=torch.device("cpu"),
        knn_func=knn,
    )

    def score(embeddings, labels):
        tensors = torch.from_numpy(embeddings), torch.from_numpy(labels)
        return float(calculator.get_accuracy(*tensors)[names[-1]])

    return score


def main() -> None:
    """Warms up on a small part, then measures."""
    kind, path = sys.argv[1:3]
    with np.load(path) as arrays:
        embeddings, labels = arrays["embeddings"], arrays["labels"]
    contenders: dict[str, Callable[[], Any]] = {
        "plain": lambda: plain,
        "pml": pytorch_metric_learning,
    }
    score = contenders.get(kind, lambda: ours(kind))()
    score(embeddings[:1000], np.arange(1000) // 4)
    before = peak_megabytes()
    start = time.perf_counter()
    found = score(embeddings, labels)
    report = {
        "seconds": time.perf_counter() - start,
        "growth_mb": peak_megabytes() - before,
    }
    if found is not None:
        report["map_at_r"] = found
    print(json.dumps(report))


if __name__ == "__main__":
    main()
