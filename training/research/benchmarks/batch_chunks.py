"""A batch in chunks: memory and time of a step, beside the plain step.

    python -m training.research.benchmarks.batch_chunks --json FILE

MobileNetV2 with multi-similarity and frozen batch normalization. With chunks
of a fixed size the memory should hardly grow with the batch, as that of a
plain step does. Each measurement runs in its own process; memory is the growth
of its peak over a step of two images a chunk. A chunked step embeds twice,
which should take about 4/3 of the time of a plain one.
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from tqdm import tqdm

from training.research.report import (
    CommandSettings,
    Measurement,
    Table,
    in_own_process,
    ratio_table,
    run_measurement,
)
from training.runs.environment import peak_memory


@dataclass(frozen=True, kw_only=True)
class Settings(CommandSettings):
    """What to measure."""

    batches: tuple[int, ...] = (32, 64, 128, 256, 512, 1024)
    """Images in a batch."""
    chunk: int = 32
    """Images in a chunk; divides the batches."""
    side: int = 96
    """Side of the images, pixels."""
    width: float = 0.35
    """Width of MobileNetV2."""
    steps: int = 3
    """Timed steps of each measurement."""

    SMALL = {"batches": (8,), "chunk": 4, "side": 32, "steps": 1}


def make_learner(settings: Settings, chunks: int) -> Any:
    """A compiled learner on MobileNetV2, batch normalization frozen."""
    import keras

    import keras_gsp as gsp

    network = keras.applications.MobileNetV2(
        (settings.side, settings.side, 3),
        alpha=settings.width,
        include_top=False,
        weights=None,
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


def steps_alone(batch: int, chunks: int, settings: Settings) -> dict[str, Any]:
    """Seconds of each step and growth of memory, in a process of its own."""
    learner = make_learner(settings, chunks)
    random, side = np.random.default_rng(0), settings.side

    def train(size):
        images = random.random((size, side, side, 3), dtype="float32")
        labels = np.arange(size) // 4
        start = time.perf_counter()
        learner.train_on_batch(images, labels)
        return time.perf_counter() - start

    # Two images a chunk: the memory of the program itself.
    train(2 * chunks)
    before = peak_memory()
    train(batch)
    seconds = [train(batch) for _ in range(settings.steps)]
    return {
        "seconds": seconds,
        "growth_mb": (peak_memory() - before) / 2**20,
    }


def measured(batch: int, chunks: int, settings: Settings) -> Measurement:
    """Runs the steps of one batch in a new process."""
    name = "plain" if chunks == 1 else f"{chunks} chunks of {batch // chunks}"
    try:
        found = in_own_process(steps_alone, batch, chunks, settings)
    except Exception:  # noqa: BLE001 - each backend has its own
        # A plain step that does not fit is a result too.
        found = {"seconds": [float("nan")], "growth_mb": float("nan")}
    facts = {"memory grows by": f"{found['growth_mb']:,.0f} MB"}
    return Measurement(name, tuple(found["seconds"]), facts)


def measure(settings: Settings) -> Iterator[Table]:
    """Yields a table for each batch."""
    for batch in tqdm(settings.batches, desc="batches"):
        counts = dict.fromkeys((1, max(1, batch // settings.chunk)))
        found = [measured(batch, n, settings) for n in counts]
        yield ratio_table(found, f"{batch:,} images", "step")


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
