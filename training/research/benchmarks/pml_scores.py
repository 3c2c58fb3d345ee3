"""One run of pytorch-metric-learning's accuracy calculator.

Started by training.research.benchmarks.evaluation under another interpreter, with the
file of embeddings; prints seconds, growth of memory and MAP@R as JSON.
Searches with faiss where it is installed, as the library does by default,
otherwise with the library's own blocks of distances.
"""

import importlib.util
import json
import resource
import sys
import time
from typing import Any

import numpy as np
import torch
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.utils.accuracy_calculator import (
    AccuracyCalculator,
)
from pytorch_metric_learning.utils.inference import CustomKNN


def peak_megabytes() -> float:
    """Returns the process's largest resident memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def calculator() -> Any:
    """Returns the calculator of the scores that keras_gsp computes."""
    search = None
    if importlib.util.find_spec("faiss") is None:
        distance = LpDistance(normalize_embeddings=False)
        search = CustomKNN(distance, batch_size=256)
    return AccuracyCalculator(
        include=(
            "precision_at_1",
            "r_precision",
            "mean_average_precision_at_r",
        ),
        k="max_bin_count",
        device=torch.device("cpu"),
        knn_func=search,
    )


def main() -> None:
    """Warms up on a small part, then measures."""
    with np.load(sys.argv[2]) as arrays:
        embeddings = torch.from_numpy(arrays["embeddings"])
        labels = torch.from_numpy(arrays["labels"])
    accuracy = calculator()
    accuracy.get_accuracy(embeddings[:1000], torch.arange(1000) // 4)
    before = peak_megabytes()
    start = time.perf_counter()
    scores = accuracy.get_accuracy(embeddings, labels)
    seconds = time.perf_counter() - start
    report = {
        "seconds": seconds,
        "growth_mb": peak_megabytes() - before,
        "map_at_r": float(scores["mean_average_precision_at_r"]),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
