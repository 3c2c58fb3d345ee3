"""Steps on so many devices, measured in a process of its own.

Started by training.research.benchmarks.scaling with the kind, the number of devices
and the sizes. Prints seconds, the last loss and memory as JSON.
"""

import json
import resource
import sys
import time
from typing import Any

import keras
import numpy as np

import keras_gsp as gsp
from training.runs.distribution import NONE, Distribution, Kind


class Clock(keras.callbacks.Callback):
    """Notes when each step has ended, and the mean loss so far."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []
        self.loss = float("nan")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Waits for the step, which JAX only began."""
        self.loss = float(logs["loss"])
        self.ends.append(time.perf_counter())


def image_learner(sizes: dict[str, int]) -> tuple[Any, Any, Any]:
    """Returns a learner with a pair loss, images and labels of a batch."""
    side, filters = sizes["image_size"], sizes["filters"]
    encoder = keras.Sequential(
        [
            keras.Input((side, side, 3)),
            keras.layers.Conv2D(filters, 3, strides=2, activation="relu"),
            keras.layers.Conv2D(2 * filters, 3, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(sizes["embedding_size"]),
        ]
    )
    learner = gsp.models.MetricLearner(encoder, seed=0)
    loss = gsp.losses.MultiSimilarityLoss()
    learner.compile("adam", loss=loss, jit_compile=True)
    count = sizes["batch_size"]
    shape = (count, side, side, 3)
    images = np.random.default_rng(0).random(shape, "float32")
    return learner, images, np.arange(count) // 4


def proxy_learner(sizes: dict[str, int]) -> tuple[Any, Any, Any]:
    """Returns a learner with a proxy for each of many classes."""
    size, count = sizes["embedding_size"], sizes["proxy_batch_size"]
    encoder = keras.Sequential([keras.Input((size,)), keras.layers.Dense(size)])
    learner = gsp.models.MetricLearner(
        encoder,
        proxies=gsp.layers.ClassProxies(
            sizes["num_classes"], name="class_proxies"
        ),
    )
    loss = gsp.losses.ProxyNCALoss()
    learner.compile("adam", loss=loss, jit_compile=True)
    random = np.random.default_rng(0)
    labels = random.integers(sizes["num_classes"], size=count)
    return learner, random.random((count, size), "float32"), labels


def bytes_a_device(learner: gsp.models.MetricLearner) -> int:
    """Returns what one device holds of the proxies and their slots."""
    if learner.proxies is None:
        return 0
    shape = tuple(learner.proxies.proxies.shape)
    return sum(
        variable.value.addressable_shards[0].data.nbytes
        for variable in [*learner.variables, *learner.optimizer.variables]
        if tuple(variable.shape) == shape
    )


def main() -> None:
    """Two steps that compile and settle, then those that are timed."""
    count, sizes = int(sys.argv[2]), json.loads(sys.argv[3])
    kind: Kind = "data" if sys.argv[1] == "data" else "model"
    build = image_learner if kind == "data" else proxy_learner
    keras.utils.set_random_seed(0)
    distribution = NONE if count == 1 else Distribution(kind, count)
    clock = Clock()
    with distribution.scope():
        learner, images, labels = build(sizes)
        steps = sizes["steps"] + 2
        learner.fit(
            np.concatenate([images] * steps),
            np.concatenate([labels] * steps),
            batch_size=len(images),
            shuffle=False,
            verbose=0,
            callbacks=[clock],
        )
        held = bytes_a_device(learner)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = {
        "seconds": np.diff(clock.ends)[1:].tolist(),
        "loss": clock.loss,
        "bytes_a_device": held,
        "peak_mb": peak,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
