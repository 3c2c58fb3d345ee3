"""Time to draw a class-balanced batch, and to choose the next proxies.

    python -m training.research.benchmarks.sampling

At the size of Stanford Online Products: 59,551 images in 11,318 classes of 2
to 14. Aims on two cores: over 1,000 index batches a second, and less than one
second for the greedy k-center choice of 4 proxies per class from a pool of 7
beside 4 existing ones, 128 numbers each.
"""

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import tyro
from keras import ops

import keras_gsp as gsp
from training.research.report import CommandSettings, Table, run_benchmark

POOL, EXISTING, CHOSEN = 7, 4, 4


@dataclass(frozen=True, kw_only=True)
class Settings(CommandSettings):
    """What to measure."""

    num_items: int = 59_551
    """Images, 2 to 14 times the classes."""
    num_classes: int = 11_318
    batches: int = 2000
    """Batches of 28 classes with 4 images each."""
    embedding_size: int = 128
    repeats: int = 5
    """Timed runs; the table has the median."""

    def small(self) -> "Settings":
        """Few items and batches."""
        return replace(
            self, num_items=200, num_classes=40, batches=10, repeats=1
        )


def labels_like_products(settings: Settings) -> np.ndarray:
    """Returns one label per image: two of each class, the rest at random."""
    rng = np.random.default_rng(0)
    classes = np.arange(settings.num_classes)
    rest = settings.num_items - 2 * len(classes)
    free = rng.permutation(np.repeat(classes, 12))[:rest]
    return rng.permutation(np.concatenate([classes, classes, free]))


def seconds_per_batch(settings: Settings) -> float:
    """Seconds for one index batch, after the first."""
    batches = gsp.data.class_balanced_batches(
        labels_like_products(settings),
        classes_per_batch=28,
        samples_per_class=4,
    ).as_numpy_iterator()
    next(batches)
    start = time.perf_counter()
    for _ in itertools.islice(batches, settings.batches):
        pass
    return (time.perf_counter() - start) / settings.batches


def seconds_per_choice(settings: Settings) -> float:
    """Seconds to choose the next proxies of all classes."""
    rng = np.random.default_rng(0)
    pool, existing = (
        ops.convert_to_tensor(
            rng.standard_normal(
                (settings.num_classes, count, settings.embedding_size),
                dtype="float32",
            )
        )
        for count in (POOL, EXISTING)
    )
    start = time.perf_counter()
    ops.convert_to_numpy(gsp.ops.greedy_k_center(pool, existing, CHOSEN))
    return time.perf_counter() - start


def measure(settings: Settings) -> Iterator[Table]:
    """Yields one table with both times."""
    rows = []
    for name, measured, aim in (
        ("class-balanced batch", seconds_per_batch, "0.001"),
        ("next proxies of all classes", seconds_per_choice, "1"),
    ):
        times = [measured(settings) for _ in range(settings.repeats)]
        rows.append([name, f"{np.median(times):.3g}", aim])
    yield Table(("", "seconds", "aim, at most"), rows)


def main(arguments: list[str] | None = None) -> None:
    """Prints the table."""
    settings = tyro.cli(Settings, description=__doc__, args=arguments)
    run_benchmark(
        "benchmarks.sampling",
        "Drawing batches and choosing proxies",
        __doc__,
        settings,
        measure,
    )


if __name__ == "__main__":
    main()
