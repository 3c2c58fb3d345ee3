"""MAP@R of 6,000 and 60,000 embeddings, beside plain TensorFlow.

    python -m training.research.benchmarks.evaluation --json evaluation.json

The plain search is a product of each block of queries with the gallery, then
`tf.math.top_k`, without scores. With `--pml-python /path/to/bin/python`
pytorch-metric-learning runs too; that interpreter needs torch and, for the
library's default search, faiss.

Each run is a new process with its own peak of memory. Aims at 60,000 x 128: at
most 0.8 times the plain time if the queries are the gallery, at most 1.0 times
with a separate gallery, in less than 400 MB.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tyro
from tqdm import tqdm

from training.research.report import (
    CommandSettings,
    Measurement,
    Table,
    ratio_table,
    run_benchmark,
)

SCRIPT = Path(__file__).with_name("score_contender.py")


@dataclass(frozen=True, kw_only=True)
class Settings(CommandSettings):
    """What to measure."""

    sizes: tuple[int, ...] = (6_000, 60_000)
    """Numbers of embeddings."""
    items_per_class: int = 5
    """Mean size of a class; with 5, R is as in Stanford Online Products."""
    embedding_size: int = 128
    repeats: int = 3
    pml_python: Path | None = None
    """Interpreter that has torch and pytorch-metric-learning."""

    def small(self) -> "Settings":
        """One small gallery."""
        return replace(self, sizes=(1200,), embedding_size=8, repeats=1)


def write_embeddings(path: Path, count: int, settings: Settings) -> None:
    """Writes clustered unit vectors and their labels."""
    rng = np.random.default_rng(0)
    num_classes = max(2, count // settings.items_per_class)
    labels = rng.integers(num_classes, size=count)
    shape = (settings.embedding_size,)
    centers = rng.standard_normal((num_classes, *shape), dtype="float32")
    embeddings = centers[labels] + 1.5 * rng.standard_normal(
        (count, *shape), dtype="float32"
    )
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    np.savez(path, embeddings=embeddings, labels=labels)


def run(python: str | Path, kind: str, path: Path) -> dict:
    """Returns what a contender prints as its last line, a JSON object."""
    answer = subprocess.run(
        [str(python), str(SCRIPT), kind, str(path)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(answer.stdout.splitlines()[-1])


def measurement(name: str, runs: list[dict]) -> Measurement:
    """Joins the runs of one contender."""
    peak = max(run["growth_mb"] for run in runs)
    facts = {"memory grows by": f"{peak:,.0f} MB"}
    if "map_at_r" in runs[0]:
        facts["MAP@R"] = f"{runs[0]['map_at_r']:.8f}"
    return Measurement(name, tuple(run["seconds"] for run in runs), facts)


def measure(settings: Settings) -> Iterator[Table]:
    """Yields a table for each size."""
    contenders: dict[str, tuple[str | Path, str]] = {
        "plain product and top_k": (sys.executable, "plain"),
        "keras_gsp": (sys.executable, "scores"),
        "keras_gsp, separate gallery": (sys.executable, "gallery"),
    }
    if settings.pml_python is not None:
        contenders["pytorch-metric-learning"] = settings.pml_python, "pml"
    for count in settings.sizes:
        runs: dict[str, list[dict]] = {name: [] for name in contenders}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "embeddings.npz"
            write_embeddings(path, count, settings)
            for _ in tqdm(range(settings.repeats), desc=f"{count} embeddings"):
                for name, command in contenders.items():
                    runs[name].append(run(*command, path))
        measured = [measurement(name, found) for name, found in runs.items()]
        title = f"{count:,} embeddings of {settings.embedding_size} numbers"
        yield ratio_table(measured, title)


def main(arguments: list[str] | None = None) -> None:
    """Prints one table for each size."""
    settings = tyro.cli(Settings, description=__doc__, args=arguments)
    run_benchmark(
        "benchmarks.evaluation",
        "Scoring a retrieval",
        __doc__,
        settings,
        measure,
    )


if __name__ == "__main__":
    main()
