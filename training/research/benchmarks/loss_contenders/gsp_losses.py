"""Value and step time of one of our losses; see losses.py beside this folder.

Given the folder of problems, prints one JSON object a line for each: value
and seconds a step. The gradients are left beside the problem.
"""

import gc
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import keras_gsp as gsp

LOSSES = {
    "contrastive": lambda: gsp.losses.ContrastiveLoss(),
    "cosine_contrastive": lambda: gsp.losses.CosineContrastiveLoss(),
    "triplet": lambda: gsp.losses.TripletLoss(),
    "multi_similarity": lambda: gsp.losses.MultiSimilarityLoss(),
    "multi_similarity_mined": lambda: gsp.losses.MultiSimilarityLoss(
        mining_margin=0.1
    ),
    "proxy_nca": lambda: gsp.losses.ProxyNCALoss(),
    "proxy_anchor": lambda: gsp.losses.ProxyAnchorLoss(),
    "soft_triple": lambda: gsp.losses.SoftTripleLoss(),
    "arcface": lambda: gsp.losses.ArcFaceLoss(),
    "sub_center_arcface": lambda: gsp.losses.ArcFaceLoss(),
    "cosface": lambda: gsp.losses.CosFaceLoss(),
    "normalized_softmax": lambda: gsp.losses.NormalizedSoftmaxLoss(),
    "triplet_batch_hard": lambda: gsp.losses.TripletLoss(
        0.2, miner="batch_hard"
    ),
    "contrastive_mined": lambda: gsp.losses.ContrastiveLoss(
        0.0, 1.0, miner="multi_similarity"
    ),
    "margin": lambda: gsp.losses.MarginLoss(),
    "margin_distance_weighted": lambda: gsp.losses.MarginLoss(
        miner="distance_weighted", seed=0
    ),
    "supervised_contrastive": lambda: gsp.losses.SupConLoss(),
    "ntxent": lambda: gsp.losses.NTXentLoss(),
    "circle": lambda: gsp.losses.CircleLoss(),
    "lifted_structure": lambda: gsp.losses.LiftedStructureLoss(),
    "n_pair": lambda: gsp.losses.NPairLoss(),
    "smooth_ap": lambda: gsp.losses.SmoothAPLoss(),
    "recall_at_k": lambda: gsp.losses.RecallAtKLoss(),
    "potential_field": lambda: gsp.losses.PotentialFieldLoss(),
}


def compiled_step(case: dict[str, Any], problem: Any) -> Any:
    """Returns a function that computes value and gradients."""
    loss = LOSSES[case["loss"]]()
    labels = tf.constant(problem["labels"])
    embeddings = tf.Variable(problem["embeddings"])
    watched = [embeddings]
    proxies = None
    if case["num_classes"]:
        proxies = gsp.layers.ClassProxies(
            case["num_classes"], proxies_per_class=case["proxies_per_class"]
        )
        proxies.build(embeddings.shape)
        proxies.proxies.assign(problem["proxies"])
        watched.append(proxies.proxies.value)

    @tf.function(jit_compile=True)
    def step(labels):
        with tf.GradientTape() as tape:
            output = tf.convert_to_tensor(embeddings)
            if proxies is not None:
                output = proxies(output)
            value = loss(labels, output)
        # Of the losses without proxies and of rows that nothing pulls too.
        return value, tape.gradient(
            value, watched, unconnected_gradients="zero"
        )

    return lambda: step(labels)


def measured(case: dict[str, Any], path: Path) -> dict[str, Any]:
    """Returns the value, and the seconds a step of each repetition."""
    with np.load(path) as problem:
        step = compiled_step(case, problem)
    value, found = step()
    np.savez(path.with_suffix(".ours.npz"), *(g.numpy() for g in found))
    value = float(value)
    start = time.perf_counter()
    step()[0].numpy()
    once = time.perf_counter() - start
    steps = max(3, int(case["seconds"] / once))
    seconds = []
    for _ in range(case["repeats"]):
        start = time.perf_counter()
        for _ in range(steps):
            last, _ = step()
        last.numpy()
        seconds.append((time.perf_counter() - start) / steps)
    return {"value": value, "seconds": seconds}


def main() -> None:
    """Measures every case, in order."""
    folder = Path(sys.argv[1])
    cases = json.loads((folder / "cases.json").read_text())
    for number, case in enumerate(cases):
        found = measured(case, folder / f"{number}.npz")
        print(json.dumps(found), flush=True)
        # What a case leaves behind slows those after it.
        gc.collect()


if __name__ == "__main__":
    main()
