"""Greedy k-centre at the size of Stanford Online Products.

11,318 classes x (pool 7, 4 existing proxies, choose 4) x 128: to be done in
under one second on two cores.
"""

import time
from dataclasses import dataclass

import numpy as np
import tyro
from keras import ops

import keras_gsp as gsp


@dataclass
class Settings:
    """What to measure."""

    num_classes: int = 11_318
    pool_size: int = 7
    """Samples a class."""
    num_existing: int = 4
    """Proxies a class that are already there."""
    num_centers: int = 4
    """Samples to choose a class."""
    embedding_size: int = 128
    repeats: int = 5
    """Timed runs; the median is printed."""


def measure(settings: Settings) -> float:
    """Returns the median seconds of one choice for all classes."""
    generator = np.random.default_rng(0)

    def random(length):
        shape = (settings.num_classes, length, settings.embedding_size)
        vectors = generator.standard_normal(shape, dtype="float32")
        return ops.convert_to_tensor(vectors)

    pool, existing = random(settings.pool_size), random(settings.num_existing)
    seconds = []
    for _ in range(settings.repeats):
        start = time.perf_counter()
        chosen = gsp.ops.greedy_k_center(pool, existing, settings.num_centers)
        ops.convert_to_numpy(chosen)
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


def main() -> None:
    """Prints the seconds."""
    settings = tyro.cli(Settings)
    seconds = measure(settings)
    print(
        f"k-centre: {settings.num_classes} classes x "
        f"({settings.pool_size} + {settings.num_existing}, choose "
        f"{settings.num_centers}) x {settings.embedding_size}: "
        f"{seconds:.3f} s (aim: under 1 s)"
    )


if __name__ == "__main__":
    main()
