"""What an encoder loses as an ONNX or LiteRT file, and what it takes.

    python -m training.research.benchmarks.encoder_files --runs runs/emoji runs/birds

Each file is one of `training.export --format`. MAP@R of the test classes, in %;
loss: points below Keras, query by query, with a 95 % interval over the classes.
Milliseconds: the median of twenty images, one at a time, beside
`predict_on_batch` of Keras. Weights are small, but computation stays in float32:
a smaller file is not a faster one.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.export import Export, export_run
from training.research.report import CommandSettings, Table, run_measurement
from training.research.study_record import interval

HEADINGS = "format", "weights", "MB", "MAP@R", "loss", "ms", "ms of Keras"


@dataclass(frozen=True, kw_only=True)
class Settings(CommandSettings):
    """Which encoders to write."""

    runs: tuple[Path, ...]
    """Finished runs."""
    formats: tuple[str, ...] = ("onnx", "litert")


def measure(settings: Settings) -> Iterator[Table]:
    """Yields a table for each run."""
    for run in settings.runs:
        rows = [
            written(run, name, weights)
            for name in settings.formats
            for weights in (None, "float16", "int8")
        ]
        yield Table(HEADINGS, rows, 2, run.name)


def written(run: Path, name: str, weights: str | None) -> list[str]:
    """Writes one file and returns its row."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "model")
        options: Any = {
            "format": name,
            "quantization": weights,
            "index": "none",
        }
        export_run(Export(run, output=target, **options))
        facts = json.loads((target / "metadata.json").read_text())
        sizes = [
            file.stat().st_size
            for file in target.iterdir()
            if file.suffix in (".onnx", ".tflite")
        ]
    return [
        name,
        weights or "float32",
        f"{sum(sizes) / 1e6:.2f}",
        f"{100 * facts['map_at_r_of_format']:.2f}",
        interval(facts["map_at_r_lost"]),
        f"{facts['milliseconds_of_format']:.1f}",
        f"{facts['milliseconds_of_keras']:.1f}",
    ]


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
