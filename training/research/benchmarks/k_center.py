"""Greedy k-center at the size of Stanford Online Products.

    python -m training.research.benchmarks.k_center

For each class as many samples of a pool are chosen as there are proxies, each
as far as can be from what there is. Aim at 11,318 classes x (pool 7, 4
existing proxies, choose 4) x 128: less than one second on two cores. The
rival is the same choice, class by class, in NumPy.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import tyro
from keras import ops
from tqdm import tqdm

import keras_gsp as gsp
from training.research.report import (
    CommandSettings,
    Measurement,
    Table,
    ratio_table,
    run_benchmark,
)


@dataclass(frozen=True, kw_only=True)
class Settings(CommandSettings):
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

    def small(self) -> "Settings":
        """Few classes."""
        return replace(self, num_classes=20, embedding_size=8, repeats=1)


def vectors(settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Returns the pool and the existing proxies, (classes, count, size)."""
    generator = np.random.default_rng(0)

    def random(length):
        shape = (settings.num_classes, length, settings.embedding_size)
        return generator.standard_normal(shape, dtype="float32")

    return random(settings.pool_size), random(settings.num_existing)


def ours(pool: np.ndarray, existing: np.ndarray, count: int) -> np.ndarray:
    """Returns the chosen of all classes at once, (classes, count)."""
    chosen = gsp.ops.greedy_k_center(
        ops.convert_to_tensor(pool), ops.convert_to_tensor(existing), count
    )
    return np.asarray(ops.convert_to_numpy(chosen))


def class_by_class(
    pool: np.ndarray, existing: np.ndarray, count: int
) -> np.ndarray:
    """Returns the same as `ours`, written with a loop over classes."""
    found = []
    for samples, proxies in zip(pool, existing, strict=True):
        apart = np.square(samples[:, None] - proxies).sum(-1).min(axis=1)
        chosen = []
        for _ in range(count):
            chosen.append(int(apart.argmax()))
            to_new = np.square(samples - samples[chosen[-1]]).sum(-1)
            apart = np.minimum(apart, to_new)
            apart[chosen] = -1.0
        found.append(chosen)
    return np.array(found)


CONTENDERS: dict[str, Callable[[np.ndarray, np.ndarray, int], np.ndarray]] = {
    "NumPy, class by class": class_by_class,
    "greedy_k_center": ours,
}


def measure(settings: Settings) -> Iterator[Table]:
    """Times both in turn."""
    pool, existing = vectors(settings)
    seconds: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    for _ in tqdm(range(settings.repeats), desc="repetitions"):
        for name, choose in CONTENDERS.items():
            start = time.perf_counter()
            choose(pool, existing, settings.num_centers)
            seconds[name].append(time.perf_counter() - start)
    yield ratio_table(
        [Measurement(name, tuple(times)) for name, times in seconds.items()],
        f"{settings.num_classes:,} classes x ({settings.pool_size} + "
        f"{settings.num_existing}, choose {settings.num_centers}) x "
        f"{settings.embedding_size}",
    )


def main(arguments: list[str] | None = None) -> None:
    """Prints the table."""
    settings = tyro.cli(Settings, description=__doc__, args=arguments)
    run_benchmark(
        "benchmarks.k_center",
        "Choosing the next proxies",
        __doc__,
        settings,
        measure,
    )


if __name__ == "__main__":
    main()
