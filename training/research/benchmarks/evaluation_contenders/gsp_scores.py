"""One run of `retrieval_scores` in a process of its own.

Started by training.research.benchmarks.evaluation with the file of embeddings and, for
a copy of them as a gallery of its own, the word `gallery`; prints seconds,
growth of memory and MAP@R as JSON.
"""

import json
import resource
import sys
import time

import numpy as np

import keras_gsp as gsp


def peak_megabytes() -> float:
    """Returns the process's largest resident memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Warms up on a small part, then measures."""
    with np.load(sys.argv[1]) as arrays:
        embeddings, labels = arrays["embeddings"], arrays["labels"]
    gsp.metrics.retrieval_scores(embeddings[:1000], np.arange(1000) // 4)
    gallery = {}
    if "gallery" in sys.argv[2:]:
        gallery = {
            "gallery_embeddings": embeddings.copy(),
            "gallery_labels": labels,
        }
    before = peak_megabytes()
    start = time.perf_counter()
    scores = gsp.metrics.retrieval_scores(embeddings, labels, **gallery)
    seconds = time.perf_counter() - start
    report = {
        "seconds": seconds,
        "growth_mb": peak_megabytes() - before,
        "map_at_r": scores["map_at_r"],
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
