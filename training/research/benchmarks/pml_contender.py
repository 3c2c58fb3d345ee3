"""pytorch-metric-learning, timed for `benchmarks.losses` and `.evaluation`.

Runs under an interpreter with torch and pytorch-metric-learning. Arguments:
`losses` and the folder of problems, or `scores` and the file of embeddings.
Prints one JSON line for each problem: value and seconds a step, or null for a
loss that the library lacks; the gradients are written beside it. For scores
seconds, growth of memory and MAP@R; it searches with faiss where installed.
"""

import gc
import importlib.util
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_metric_learning import distances, losses, miners, reducers


def cosine_contrastive(case: dict[str, Any]) -> Any:
    """C1: hinges on cosines, their sum divided by the anchors."""
    loss = losses.ContrastiveLoss(
        pos_margin=1.0 - 1e-5,
        neg_margin=0.5,
        distance=distances.CosineSimilarity(),
        reducer=reducers.SumReducer(),
    )
    return lambda embeddings, labels: loss(embeddings, labels) / len(labels)


def with_miner(loss: Any, miner: Any) -> Any:
    """A loss on what a miner chooses."""
    return lambda case: (
        lambda embeddings, labels: loss(
            embeddings, labels, miner(embeddings, labels)
        )
    )


# Proxy-NCA: softmax of cosine / 0.11 is softmax of -distance^2 / 0.22.
LOSSES = {
    "ContrastiveLoss": lambda case: losses.ContrastiveLoss(
        pos_margin=0.0, neg_margin=0.5
    ),
    "CosineContrastiveLoss": cosine_contrastive,
    "TripletLoss": lambda case: losses.TripletMarginLoss(margin=0.05),
    "MultiSimilarityLoss": lambda case: losses.MultiSimilarityLoss(
        alpha=2.0, beta=40.0, base=0.5
    ),
    "MultiSimilarityLoss, mined": with_miner(
        losses.MultiSimilarityLoss(alpha=2.0, beta=40.0, base=0.5),
        miners.MultiSimilarityMiner(epsilon=0.1),
    ),
    "ProxyNCALoss": lambda case: losses.ProxyNCALoss(
        case["num_classes"], case["embedding_size"], softmax_scale=1 / 0.22
    ),
    "ProxyAnchorLoss": lambda case: losses.ProxyAnchorLoss(
        case["num_classes"], case["embedding_size"], margin=0.1, alpha=32
    ),
    "SoftTripleLoss": lambda case: losses.SoftTripleLoss(
        case["num_classes"],
        case["embedding_size"],
        centers_per_class=case["proxies_per_class"],
        la=20,
        gamma=0.1,
        margin=0.01,
    ),
    "ArcFaceLoss": lambda case: losses.ArcFaceLoss(
        case["num_classes"],
        case["embedding_size"],
        margin=np.degrees(0.5),
        scale=64,
    ),
    "ArcFaceLoss, 2 centers": lambda case: losses.SubCenterArcFaceLoss(
        num_classes=case["num_classes"],
        embedding_size=case["embedding_size"],
        margin=np.degrees(0.5),
        scale=64,
        sub_centers=case["proxies_per_class"],
    ),
    "CosFaceLoss": lambda case: losses.CosFaceLoss(
        case["num_classes"], case["embedding_size"], margin=0.35, scale=64
    ),
    # Theirs normalizes only with this distance.
    "NormalizedSoftmaxLoss": lambda case: losses.NormalizedSoftmaxLoss(
        case["num_classes"],
        case["embedding_size"],
        temperature=0.05,
        distance=distances.CosineSimilarity(),
    ),
    "TripletLoss, batch hard": with_miner(
        losses.TripletMarginLoss(margin=0.2), miners.BatchHardMiner()
    ),
    "ContrastiveLoss, mined": with_miner(
        losses.ContrastiveLoss(pos_margin=0.0, neg_margin=1.0),
        miners.MultiSimilarityMiner(epsilon=0.1),
    ),
    "MarginLoss": lambda case: losses.MarginLoss(margin=0.2, beta=1.2),
    # On triplets drawn by distance.
    "MarginLoss, distance weighted": with_miner(
        losses.MarginLoss(),
        miners.DistanceWeightedMiner(cutoff=0.5, nonzero_loss_cutoff=1.4),
    ),
    "SupConLoss": lambda case: losses.SupConLoss(temperature=0.1),
    "NTXentLoss": lambda case: losses.NTXentLoss(temperature=0.1),
    "CircleLoss": lambda case: losses.CircleLoss(m=0.4, gamma=80),
    "LiftedStructureLoss": lambda case: losses.LiftedStructureLoss(
        neg_margin=1, pos_margin=0
    ),
    "NPairLoss": lambda case: losses.NPairsLoss(),
    "SmoothAPLoss": lambda case: losses.SmoothAPLoss(temperature=0.01),
}


def set_proxies(loss: Any, proxies: Any) -> None:
    """Gives the loss our proxies, in its own layout."""
    rows = torch.tensor(proxies.reshape(-1, proxies.shape[-1]))
    columns = next((n for n in ("fc", "W") if hasattr(loss, n)), None)
    if columns:
        getattr(loss, columns).data = rows.T.contiguous()
    else:
        loss.proxies.data = rows


def eager_step(case: dict[str, Any], problem: Any, dtype: str) -> Any:
    """Returns a function that computes value and gradients."""
    loss = LOSSES[case["loss"]](case)
    if case["num_classes"]:
        set_proxies(loss, problem["proxies"])
    labels = torch.tensor(problem["labels"])
    embeddings = torch.tensor(
        problem["embeddings"], dtype=dtype, requires_grad=True
    )
    watched = [embeddings]
    if isinstance(loss, torch.nn.Module):
        watched.extend(loss.parameters())

    def step():
        value = loss(embeddings, labels)
        found = torch.autograd.grad(value, watched, allow_unused=True)
        return value.item(), found

    def gradients():
        found = step()[1][:2]
        rows = [g.numpy() for g in found if g is not None]
        is_columns = any(hasattr(loss, name) for name in ("fc", "W"))
        return [
            row.T if is_columns and i else row for i, row in enumerate(rows)
        ]

    return step, gradients


def measured(case: dict[str, Any], path: Path) -> Any:
    """Returns the value, and the seconds a step of each repetition."""
    if case["loss"] not in LOSSES:
        return None
    with np.load(path) as problem:
        step, _ = eager_step(case, problem, torch.float32)
        # Rounding in float32 changes their triplet loss by up to 2e-5.
        exact, gradients = eager_step(case, problem, torch.float64)
        value = exact()[0]
    np.savez(path.with_suffix(".theirs.npz"), *gradients())
    step()
    steps = max(3, int(case["seconds"] / timed(step, 1)))
    seconds = [timed(step, steps) for _ in range(case["repeats"])]
    return {"value": value, "seconds": seconds}


def timed(step: Any, steps: int) -> float:
    """Seconds a step."""
    start = time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - start) / steps


def scored(path: Path) -> dict[str, float]:
    """The calculator with the scores that keras_gsp computes."""
    from pytorch_metric_learning.utils import accuracy_calculator, inference

    knn = None
    if importlib.util.find_spec("faiss") is None:
        distance = distances.LpDistance(normalize_embeddings=False)
        knn = inference.CustomKNN(distance, batch_size=256)
    names = "precision_at_1", "r_precision", "mean_average_precision_at_r"
    calculator = accuracy_calculator.AccuracyCalculator(
        include=names,
        k="max_bin_count",
        device=torch.device("cpu"),
        knn_func=knn,
    )
    with np.load(path) as arrays:
        embeddings = torch.from_numpy(arrays["embeddings"])
        labels = torch.from_numpy(arrays["labels"])
    calculator.get_accuracy(embeddings[:1000], torch.arange(1000) // 4)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    found = calculator.get_accuracy(embeddings, labels)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "seconds": seconds,
        "growth_mb": (after - before) / 1024,
        "map_at_r": float(found[names[-1]]),
    }


def main() -> None:
    """Measures every case, in order, or scores once."""
    kind, folder = sys.argv[1], Path(sys.argv[2])
    if kind == "scores":
        print(json.dumps(scored(folder)))
        return
    cases = json.loads((folder / "cases.json").read_text())
    for number, case in enumerate(cases):
        found = measured(case, folder / f"{number}.npz")
        print(json.dumps(found), flush=True)
        # Garbage of one case would slow the next.
        gc.collect()


if __name__ == "__main__":
    main()
