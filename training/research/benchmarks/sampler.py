"""Class-balanced index batches a second, beside tf.data's group_by_window.

    python -m training.research.benchmarks.sampler

The size is Stanford Online Products': 59,551 items in 11,318 classes of 2 to
14. Aim: over 1,000 batches a second. `group_by_window` is the usual way to
write this in tf.data; it needs a pass over shuffled items, gives one class
after another and cannot resume.
"""

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tyro
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

    num_items: int = 59_551
    num_classes: int = 11_318
    """Classes of at least 2 and at most 14 items."""
    classes_per_batch: int = 28
    samples_per_class: int = 4
    batches: int = 2000
    """Batches in one timed run; a tenth of it for group_by_window."""
    repeats: int = 5

    def small(self) -> "Settings":
        """Few items and batches."""
        return replace(
            self,
            num_items=200,
            num_classes=40,
            classes_per_batch=4,
            samples_per_class=2,
            batches=10,
            repeats=1,
        )


def labels_like_products(settings: Settings) -> np.ndarray:
    """Returns one label an item: two for each class, the rest at random."""
    rng = np.random.default_rng(0)
    counts = np.full(settings.num_classes, 2)
    rest = settings.num_items - counts.sum()
    if not 0 <= rest <= 12 * settings.num_classes:
        raise ValueError(
            "`num_items` must be 2 to 14 times `num_classes`. Received: "
            f"{settings.num_items} items, {settings.num_classes} classes."
        )
    free = rng.permutation(np.repeat(np.arange(settings.num_classes), 12))
    counts += np.bincount(free[:rest], minlength=settings.num_classes)
    return rng.permutation(np.repeat(np.arange(settings.num_classes), counts))


def grouped_batches(labels: np.ndarray, settings: Settings) -> Any:
    """Returns the same kind of batches by shuffle and group_by_window."""
    import tensorflow as tf

    per_class, per_batch = (
        settings.samples_per_class,
        settings.classes_per_batch,
    )
    items = tf.data.Dataset.range(len(labels)).repeat().shuffle(len(labels))
    class_of = tf.constant(labels, "int64")
    groups = items.group_by_window(
        key_func=lambda item: class_of[item],
        reduce_func=lambda _, window: window.batch(per_class),
        window_size=per_class,
    )
    groups = groups.filter(lambda group: tf.shape(group)[0] == per_class)
    return groups.unbatch().batch(per_class * per_batch)


def seconds_for(dataset: Any, batches: int) -> float:
    """Returns the time of so many batches, after the first."""
    iterator = dataset.as_numpy_iterator()
    next(iterator)
    start = time.perf_counter()
    for _ in itertools.islice(iterator, batches):
        pass
    return time.perf_counter() - start


def measure(settings: Settings) -> Iterator[Table]:
    """Times both in turn."""
    labels = labels_like_products(settings)
    balanced = gsp.data.class_balanced_batches(
        labels,
        classes_per_batch=settings.classes_per_batch,
        samples_per_class=settings.samples_per_class,
    )
    contenders = {
        "keras_gsp.data.class_balanced_batches": (balanced, settings.batches),
        "group_by_window": (
            grouped_batches(labels, settings),
            max(1, settings.batches // 10),
        ),
    }
    per_batch: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in tqdm(range(settings.repeats), desc="repetitions"):
        for name, (dataset, batches) in contenders.items():
            per_batch[name].append(seconds_for(dataset, batches) / batches)
    rows = [
        Measurement(
            name, tuple(times), {"batches/s": f"{1 / np.median(times):,.0f}"}
        )
        for name, times in per_batch.items()
    ]
    yield ratio_table(
        rows,
        f"One batch of {settings.classes_per_batch} classes x "
        f"{settings.samples_per_class} out of {len(labels):,} items in "
        f"{settings.num_classes:,} classes",
    )


def main(arguments: list[str] | None = None) -> None:
    """Prints the table."""
    settings = tyro.cli(Settings, description=__doc__, args=arguments)
    run_benchmark(
        "benchmarks.sampler",
        "Class-balanced batches",
        __doc__,
        settings,
        measure,
    )


if __name__ == "__main__":
    main()
