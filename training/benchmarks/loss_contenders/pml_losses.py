"""The same loss by pytorch-metric-learning; see losses.py beside this folder.

Runs under its own interpreter, with torch and pytorch-metric-learning. Given
the folder of problems, prints one JSON object a line for each: value and
seconds a step.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from pytorch_metric_learning import distances, losses, miners, reducers


def cosine_contrastive(case):
    """C1: hinges on cosines, their sum divided by the anchors."""
    loss = losses.ContrastiveLoss(
        pos_margin=1.0 - 1e-5,
        neg_margin=0.5,
        distance=distances.CosineSimilarity(),
        reducer=reducers.SumReducer(),
    )
    return lambda embeddings, labels: loss(embeddings, labels) / len(labels)


def mined(case):
    """Multi-similarity with its miner."""
    miner = miners.MultiSimilarityMiner(epsilon=0.1)
    loss = losses.MultiSimilarityLoss(alpha=2.0, beta=40.0, base=0.5)
    return lambda embeddings, labels: loss(
        embeddings, labels, miner(embeddings, labels)
    )


# Proxy-NCA: softmax of cosine / 0.11 is softmax of -distance^2 / 0.22.
LOSSES = {
    "contrastive": lambda case: losses.ContrastiveLoss(
        pos_margin=0.0, neg_margin=0.5
    ),
    "cosine_contrastive": cosine_contrastive,
    "triplet": lambda case: losses.TripletMarginLoss(margin=0.05),
    "multi_similarity": lambda case: losses.MultiSimilarityLoss(
        alpha=2.0, beta=40.0, base=0.5
    ),
    "multi_similarity_mined": mined,
    "proxy_nca": lambda case: losses.ProxyNCALoss(
        case["num_classes"], case["embedding_size"], softmax_scale=1 / 0.22
    ),
    "proxy_anchor": lambda case: losses.ProxyAnchorLoss(
        case["num_classes"], case["embedding_size"], margin=0.1, alpha=32
    ),
    "soft_triple": lambda case: losses.SoftTripleLoss(
        case["num_classes"],
        case["embedding_size"],
        centers_per_class=case["proxies_per_class"],
        la=20,
        gamma=0.1,
        margin=0.01,
    ),
}


def set_proxies(loss, proxies):
    """Gives the loss our proxies, in its own layout."""
    rows = torch.tensor(proxies.reshape(-1, proxies.shape[-1]))
    if hasattr(loss, "fc"):
        loss.fc.data = rows.T.contiguous()
    else:
        loss.proxies.data = rows


def eager_step(case, problem, dtype):
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
        torch.autograd.grad(value, watched)
        return value.item()

    return step


def measured(case, path):
    """Returns the value, and the seconds a step of each repetition."""
    with np.load(path) as problem:
        step = eager_step(case, problem, torch.float32)
        # Their float32 rounds by itself up to 2e-5 of a triplet loss.
        value = eager_step(case, problem, torch.float64)()
    step()
    start = time.perf_counter()
    step()
    once = time.perf_counter() - start
    steps = max(3, int(case["seconds"] / once))
    seconds = []
    for _ in range(case["repeats"]):
        start = time.perf_counter()
        for _ in range(steps):
            step()
        seconds.append((time.perf_counter() - start) / steps)
    return {"value": value, "seconds": seconds}


def main():
    """Measures every case, in order."""
    folder = Path(sys.argv[1])
    cases = json.loads((folder / "cases.json").read_text())
    for number, case in enumerate(cases):
        found = measured(case, folder / f"{number}.npz")
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
