"""Training steps in their own process, started by `batch_chunks`.

Arguments: images in a batch, number of chunks, side of the images, width of
MobileNetV2, number of steps. Prints the seconds of each step and the growth of
memory as JSON.
"""

import json
import resource
import sys
import time
from typing import Any

import keras
import numpy as np

import keras_gsp as gsp


def peak_megabytes() -> float:
    """The largest memory so far: of the GPU where there is one."""
    if keras.backend.backend() == "jax":
        import jax

        statistics = jax.devices()[0].memory_stats()
        if statistics:
            return statistics["peak_bytes_in_use"] / 2**20
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        if tf.config.list_physical_devices("GPU"):
            found = tf.config.experimental.get_memory_info("GPU:0")
            return found["peak"] / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def make_learner(side: int, width: float, chunks: int) -> Any:
    """A compiled learner on MobileNetV2, batch normalization frozen."""
    network = keras.applications.MobileNetV2(
        (side, side, 3), alpha=width, include_top=False, weights=None
    )
    for layer in network.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.trainable = False
    learner = gsp.models.MetricLearner(
        gsp.models.build_encoder(network, pooling=None), batch_chunks=chunks
    )
    learner.compile(
        keras.optimizers.SGD(1e-3), loss=gsp.losses.MultiSimilarityLoss()
    )
    return learner


def main() -> None:
    """Compiles with a small batch, then measures."""
    batch, chunks, side = map(int, sys.argv[1:4])
    width, steps = float(sys.argv[4]), int(sys.argv[5])
    learner = make_learner(side, width, chunks)
    random = np.random.default_rng(0)

    def train(size):
        images = random.random((size, side, side, 3), dtype="float32")
        labels = np.arange(size) // 4
        start = time.perf_counter()
        learner.train_on_batch(images, labels)
        return time.perf_counter() - start

    # Two images a chunk: the memory of the program itself.
    train(2 * chunks)
    before = peak_megabytes()
    train(batch)
    seconds = [train(batch) for _ in range(steps)]
    growth = peak_megabytes() - before
    print(json.dumps({"seconds": seconds, "growth_mb": growth}))


if __name__ == "__main__":
    main()
