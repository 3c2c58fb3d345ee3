"""Memory and time of a step in chunks, beside the plain step.

    python -m training.research.benchmarks.batch_chunks --json FILE

MobileNetV2 with multi-similarity and frozen batch normalization. With chunks
of a fixed size the memory should hardly grow with the batch, as that of a
plain step does. Each measurement runs in its own process; memory is the growth
of its peak over a step of two images a chunk. A chunked step embeds twice,
which should take about 4/3 of the time of a plain one.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

import tyro
from tqdm import tqdm

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
    backends: tuple[str, ...] = ("tensorflow",)
    """Keras backends: tensorflow, jax."""

    def small(self) -> "Settings":
        """One batch in two chunks."""
        return replace(self, batches=(8,), chunk=4, side=32, steps=1)


def measured(
    backend: str, batch: int, chunks: int, settings: Settings
) -> Measurement:
    """Runs the steps of one batch in a new process."""
    numbers = batch, chunks, settings.side, settings.width, settings.steps
    name = "plain" if chunks == 1 else f"{chunks} chunks of {batch // chunks}"
    answer = subprocess.run(
        [
            sys.executable,
            "-m",
            "training.research.benchmarks.chunked_step",
            *map(str, numbers),
        ],
        env=os.environ | {"KERAS_BACKEND": backend},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if answer.returncode:
        # A plain step that does not fit is a result too.
        return Measurement(name, (float("nan"),), {"memory grows by": "failed"})
    found = json.loads(answer.stdout.splitlines()[-1])
    facts = {"memory grows by": f"{found['growth_mb']:,.0f} MB"}
    return Measurement(name, tuple(found["seconds"]), facts)


def measure(settings: Settings) -> Iterator[Table]:
    """Yields a table for each backend and batch."""
    cases = [(b, size) for b in settings.backends for size in settings.batches]
    for backend, batch in tqdm(cases, desc="batches"):
        counts = dict.fromkeys((1, max(1, batch // settings.chunk)))
        found = [measured(backend, batch, n, settings) for n in counts]
        yield ratio_table(found, f"{backend}, {batch:,} images", "step")


def main(arguments: list[str] | None = None) -> None:
    """Prints one table for each backend and batch."""
    settings = tyro.cli(Settings, description=__doc__, args=arguments)
    run_benchmark(
        "benchmarks.batch_chunks",
        "A batch in chunks",
        __doc__,
        settings,
        measure,
    )


if __name__ == "__main__":
    main()
