"""MAP@R of 6,000 and 60,000 embeddings, beside plain TensorFlow.

    python -m training.benchmarks.evaluation --json evaluation.json

The rival is what one would write by hand: a product of a block of queries
with the whole gallery, then `tf.math.top_k`; scoring its answers is not even
counted. With `--pml-python /path/to/bin/python` pytorch-metric-learning runs
too; that interpreter needs torch and, for the library's default search, faiss.

Every run is a process of its own, so that its peak of memory is its own. Aim
at 60,000 x 128: where the queries are their own gallery at most 0.8 times the
plain time, with a separate gallery at most 1.0 times, in less than 400 MB.
"""

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import tyro
from tqdm import tqdm

from training.benchmarks.ratio_table import (
    Measurement,
    ratio_rows,
    ratio_table,
)
from training.results.records import keep_table

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
    json: Path | None = None
    """File to write the table to, as the record of a results page."""
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


def run(python: str | Path, script: str, path: Path, *options: str) -> dict:
    """Returns what a contender prints as its last line: a JSON object."""
    answer = subprocess.run(
        [str(python), str(CONTENDERS / script), str(path), *options],
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


def main() -> None:
    """Prints one table for each size."""
    settings = tyro.cli(Settings, description=__doc__)
    contenders = {
        "plain product and top_k": (sys.executable, "plain_search.py"),
        "keras_gsp": (sys.executable, "gsp_scores.py"),
        "keras_gsp, separate gallery": (
            sys.executable,
            "gsp_scores.py",
            "gallery",
        ),
    }
    if settings.pml_python is not None:
        contenders["pytorch-metric-learning"] = (
            settings.pml_python,
            "pml_calculator.py",
        )
    headings, kept = [], []
    for count in settings.sizes:
        runs = {name: [] for name in contenders}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "embeddings.npz"
            write_embeddings(path, count, settings)
            for _ in tqdm(range(settings.repeats), desc=f"{count} embeddings"):
                for name, (python, script, *options) in contenders.items():
                    runs[name].append(run(python, script, path, *options))
        print(f"\n{count} x {settings.embedding_size}\n")
        measured = [measurement(name, found) for name, found in runs.items()]
        print(ratio_table(measured))
        headings, *rows = ratio_rows(measured)
        kept += [[f"{count:,}", *row] for row in rows]
    if settings.json is not None:
        keep_table(
            settings.json,
            "Scoring a retrieval",
            ["embeddings", "contender", *headings[1:]],
            kept,
            command="python -m training.benchmarks.evaluation",
            about="MAP@R beside a plain blocked product with `top_k`. Ratios "
            "are of medians to the plain one's; memory is the growth of the "
            "process's peak.",
            num_left=2,
            settings={
                name: value
                for name, value in asdict(settings).items()
                if name not in ("json", "pml_python")
            },
        )


if __name__ == "__main__":
    main()
