"""MAP@R of 6,000 and 60,000 embeddings, beside pytorch-metric-learning.

    python -m training.benchmarks.evaluation --pml-python /path/to/bin/python

Every run is a process of its own, so that its peak of memory is its own. The
other interpreter needs torch, pytorch-metric-learning and, for that library's
default search, faiss; without `--pml-python` it is left out. Aim: 60,000 x
128 in less than 2 GB.
"""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from tqdm import tqdm

from training.benchmarks.ratio_table import Measurement, ratio_table

CONTENDERS = Path(__file__).parent / "evaluation_contenders"


@dataclass
class Settings:
    """What to measure."""

    sizes: tuple[int, ...] = (6_000, 60_000)
    """Numbers of embeddings."""
    items_per_class: int = 5
    """Mean size of a class; with 5, R is as in Stanford Online Products."""
    embedding_size: int = 128
    repeats: int = 3
    pml_python: Path | None = None
    """Interpreter that has torch and pytorch-metric-learning."""


def write_embeddings(path: Path, count: int, settings: Settings) -> None:
    """Writes clustered unit vectors and their labels."""
    rng = np.random.default_rng(0)
    num_classes = max(2, count // settings.items_per_class)
    labels = rng.integers(num_classes, size=count)
    shape = (settings.embedding_size,)
    centres = rng.standard_normal((num_classes, *shape), dtype="float32")
    embeddings = centres[labels] + 1.5 * rng.standard_normal(
        (count, *shape), dtype="float32"
    )
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    np.savez(path, embeddings=embeddings, labels=labels)


def run(python: str | Path, script: str, path: Path) -> dict:
    """Returns what a contender prints as its last line: a JSON object."""
    answer = subprocess.run(
        [str(python), str(CONTENDERS / script), str(path)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(answer.stdout.splitlines()[-1])


def measurement(name: str, runs: list[dict]) -> Measurement:
    """Joins the runs of one contender."""
    peak = max(run["growth_mb"] for run in runs)
    facts = {"memory grows by": f"{peak:,.0f} MB"}
    facts["MAP@R"] = f"{runs[0]['map_at_r']:.8f}"
    return Measurement(name, tuple(run["seconds"] for run in runs), facts)


def main() -> None:
    """Prints one table for each size."""
    settings = tyro.cli(Settings, description=__doc__)
    contenders = {"keras_gsp": (sys.executable, "gsp_scores.py")}
    if settings.pml_python is not None:
        contenders["pytorch-metric-learning"] = (
            settings.pml_python,
            "pml_calculator.py",
        )
    for count in settings.sizes:
        runs = {name: [] for name in contenders}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "embeddings.npz"
            write_embeddings(path, count, settings)
            for _ in tqdm(range(settings.repeats), desc=f"{count} embeddings"):
                for name, (python, script) in contenders.items():
                    runs[name].append(run(python, script, path))
        print(f"\n{count} x {settings.embedding_size}\n")
        rows = [measurement(name, found) for name, found in runs.items()]
        print(ratio_table(rows))


if __name__ == "__main__":
    main()
