"""Value and step time of one of our losses; see losses.py beside this folder.

Given the folder of problems, prints one JSON object a line for each: value
and seconds a step.
"""

import json
import sys
import time
from pathlib import Path

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
}


def compiled_step(case, problem):
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
        return value, tape.gradient(value, watched)

    return lambda: step(labels)


def measured(case, path):
    """Returns the value, and the seconds a step of each repetition."""
    with np.load(path) as problem:
        step = compiled_step(case, problem)
    value = float(step()[0])
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


def main():
    """Measures every case, in order."""
    folder = Path(sys.argv[1])
    cases = json.loads((folder / "cases.json").read_text())
    for number, case in enumerate(cases):
        found = measured(case, folder / f"{number}.npz")
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
