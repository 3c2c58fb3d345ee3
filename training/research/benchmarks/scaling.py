"""A training step on one device, two and four; proxies cut by class.

    python -m training.research.benchmarks.scaling --json docs/results/scaling.json

Devices are parts of this machine's processors (JAX), each setting in a process
of its own. What is measured is what distribution costs: on as many parts as
there are processors a step can be at best as fast as on one device, which uses
all of them already. Accelerators add theirs. The loss of each is printed,
because it has to be the same.

The first table is the whole step of a small convolutional network with a pair
loss, batch cut by device. In the second a proxy loss has as many classes as
fit here; its proxies and both slots of Adam are cut by class, and what a
device holds of them falls. `memory` is the process's largest, all devices
together.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tyro
from tqdm import tqdm

from training.research.benchmarks.ratio_table import Measurement, ratios
from training.research.benchmarks.report import BenchmarkSettings, run_benchmark
from training.research.results.records import Table


@dataclass(frozen=True, kw_only=True)
class Settings(BenchmarkSettings):
    """What to measure."""

    devices: tuple[int, ...] = (1, 2, 4)
    """Parts of the processors."""
    batch_size: int = 64
    image_size: int = 48
    filters: int = 32
    """Of the network's convolutions."""
    num_classes: int = 1_000_000
    """Proxies of the second table; has to be a multiple of the devices."""
    embedding_size: int = 64
    proxy_batch_size: int = 16
    steps: int = 5
    """Timed steps, after two that are not."""

    def small(self) -> "Settings":
        """Two settings of a few steps."""
        return replace(
            self,
            devices=(1, 2),
            batch_size=8,
            image_size=8,
            filters=4,
            num_classes=64,
            embedding_size=4,
            proxy_batch_size=4,
            steps=2,
        )


def measure(settings: Settings) -> Iterator[Table]:
    """Yields the two tables."""
    rows = [_row("data", count, settings) for count in _bar(settings, "data")]
    yield ratios(
        rows,
        f"A step of {settings.batch_size} images, {settings.image_size} "
        "pixels, multi-similarity loss",
        "devices",
    )
    rows = [_row("model", count, settings) for count in _bar(settings, "model")]
    yield ratios(
        rows,
        f"A step of {settings.proxy_batch_size} embeddings against "
        f"{settings.num_classes:,} proxies x {settings.embedding_size}, Adam",
        "devices",
    )


def main(arguments: list[str] | None = None) -> None:
    """Prints the tables."""
    settings = tyro.cli(Settings, description=__doc__, args=arguments)
    run_benchmark(
        "scaling", "From one device to several", __doc__, settings, measure
    )


def _bar(settings, name):
    return tqdm(settings.devices, desc=name)


def _row(kind, count, settings):
    found = _measured(kind, count, settings)
    facts = {"loss": f"{found['loss']:.6f}"}
    if kind == "model":
        facts["MB a device"] = f"{found['bytes_a_device'] / 1e6:.4g}"
    facts["memory"] = f"{found['peak_mb']:,.0f} MB"
    return Measurement(str(count), tuple(found["seconds"]), facts)


def _measured(kind: str, count: int, settings: Settings) -> dict[str, Any]:
    """One setting in a process of its own, which has so many devices."""
    sizes = {
        name: value
        for name, value in vars(settings).items()
        if isinstance(value, int)
    }
    flag = f"--xla_force_host_platform_device_count={count}"
    environment = {"KERAS_BACKEND": "jax", "XLA_FLAGS": flag}
    answer = subprocess.run(
        [
            *(sys.executable, "-m", "training.research.benchmarks.scaled_step"),
            *(kind, str(count), json.dumps(sizes)),
        ],
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    if answer.returncode:
        raise RuntimeError(
            f"{kind} on {count} devices ended. Received: "
            f"{answer.stderr.strip().splitlines()[-1]}"
        )
    found = json.loads(answer.stdout.splitlines()[-1])
    if not np.isfinite(found["loss"]):
        raise RuntimeError(f"{kind} on {count} devices diverged.")
    return found


if __name__ == "__main__":
    main()
