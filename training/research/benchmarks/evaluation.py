"""Scoring a retrieval: MAP@R beside a plain search by TensorFlow.

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
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

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

SCRIPT = Path(__file__).with_name("pml_contender.py")
# Products of one block of queries: 64 MB, as in keras_gsp.
BLOCK_NUMBERS = 2**24


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

    SMALL = {"sizes": (1200,), "embedding_size": 8, "repeats": 1}


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


def search(embeddings: np.ndarray, num_neighbors: int) -> np.ndarray:
    """Returns the nearest items of each, (items, num_neighbors)."""
    import tensorflow as tf

    gallery = tf.constant(embeddings.T)
    half_squares = tf.reduce_sum(tf.square(gallery), axis=0) / 2
    rows = max(1, min(1024, BLOCK_NUMBERS // len(embeddings)))
    found = []
    for start in range(0, len(embeddings), rows):
        products = tf.matmul(embeddings[start : start + rows], gallery)
        nearest = tf.math.top_k(products - half_squares, num_neighbors)
        found.append(nearest.indices.numpy())
    return np.concatenate(found)


def plain(embeddings: np.ndarray, labels: np.ndarray) -> None:
    """Searches as many neighbors as scores need, and scores nothing."""
    search(embeddings, max(int(np.bincount(labels).max()), 9))


def scores(embeddings: np.ndarray, labels: np.ndarray) -> float:
    """`gsp.metrics.retrieval_scores`."""
    import keras_gsp as gsp

    return gsp.metrics.retrieval_scores(embeddings, labels)["map_at_r"]


def gallery(embeddings: np.ndarray, labels: np.ndarray) -> float:
    """The same with a copy of the embeddings as a separate gallery."""
    import keras_gsp as gsp

    return gsp.metrics.retrieval_scores(
        embeddings,
        labels,
        gallery_embeddings=embeddings.copy(),
        gallery_labels=labels,
    )["map_at_r"]


def timed(score: Callable, path: Path) -> dict:
    """Seconds, growth of memory and MAP@R, after a warm-up on a small part."""
    with np.load(path) as arrays:
        embeddings, labels = arrays["embeddings"], arrays["labels"]
    score(embeddings[:1000], np.arange(1000) // 4)
    before = peak_memory()
    start = time.perf_counter()
    found = score(embeddings, labels)
    return {
        "seconds": time.perf_counter() - start,
        "growth_mb": (peak_memory() - before) / 2**20,
        "map_at_r": found,
    }


def theirs(python: Path, path: Path) -> dict:
    """The same of pytorch-metric-learning, under its own interpreter."""
    answer = subprocess.run(
        [str(python), str(SCRIPT), "scores", str(path)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(answer.stdout.splitlines()[-1])


def measurement(name: str, runs: list[dict]) -> Measurement:
    """Joins the runs of one contender."""
    peak = max(run["growth_mb"] for run in runs)
    facts = {"memory grows by": f"{peak:,.0f} MB"}
    if runs[0]["map_at_r"] is not None:
        facts["MAP@R"] = f"{runs[0]['map_at_r']:.8f}"
    return Measurement(name, tuple(run["seconds"] for run in runs), facts)


def measure(settings: Settings) -> Iterator[Table]:
    """Yields a table for each size."""
    contenders: dict[str, Callable[[Path], dict]] = {
        "plain product and top_k": partial(in_own_process, timed, plain),
        "keras_gsp": partial(in_own_process, timed, scores),
        "keras_gsp, separate gallery": partial(in_own_process, timed, gallery),
    }
    if settings.pml_python is not None:
        contenders["pytorch-metric-learning"] = partial(
            theirs, settings.pml_python
        )
    for count in settings.sizes:
        runs: dict[str, list[dict]] = {name: [] for name in contenders}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "embeddings.npz"
            write_embeddings(path, count, settings)
            for _ in tqdm(range(settings.repeats), desc=f"{count} embeddings"):
                for name, run in contenders.items():
                    runs[name].append(run(path))
        measured = [measurement(name, found) for name, found in runs.items()]
        title = f"{count:,} embeddings of {settings.embedding_size} numbers"
        yield ratio_table(measured, title)


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
