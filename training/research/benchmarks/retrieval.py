"""Search in galleries, compared with faiss alone; and serving.

    python -m training.research.benchmarks.retrieval --json docs/results/retrieval.json

Embeddings are clustered unit vectors. Each contender runs in its own process.
Memory is the growth of that process while it builds and searches, without
pages of mapped files. A contender whose engine is not installed is left out,
and graphs above `--graphs-up-to` items. `busy` is the processor time of all
queries; one query is the median of some that are sent alone. Bytes of an item:
those of the engine, and of the vectors for the exact distances, which `load(path,
mmap=True)` leaves on the disk. Recall: share of the true neighbors that are found,
with its 95 % interval over the queries. At the end, images a second of a whole
SavedModel.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tyro
from tqdm import tqdm

from training.research.benchmarks.search_contender import BYTES, CONTENDERS
from training.research.report import (
    CommandSettings,
    Measurement,
    Table,
    ratio_table,
    run_benchmark,
)

GRAPHS = ("FaissIndex HNSW", "faiss HNSW", "MilvusIndex embedded")
EXACT = ("faiss Flat", "ExactIndex")
SCRIPT = Path(__file__).with_name("search_contender.py")


@dataclass(frozen=True, kw_only=True)
class Settings(CommandSettings):
    """What to measure."""

    sizes: tuple[int, ...] = (10_000, 60_000, 500_000)
    """Sizes of the gallery."""
    graphs_up_to: int = 1_000_000
    """Items up to which graphs are built, the longest work."""
    embedding_size: int = 128
    num_queries: int = 1000
    neighbors: int = 10
    repeats: int = 3
    contenders: tuple[str, ...] = ()
    """Names of contenders; by default all. Recall compares with faiss Flat,
    or with ExactIndex."""
    serving: bool = True
    """Whether to serve images too."""
    model: Path | None = None
    """Exported retriever to serve images with; by default an untrained
    MobileNetV2 (0.35, 224 pixels) with GSP and 10,000 items is made."""
    batch_size: int = 32
    """Images in one request."""

    def small(self) -> "Settings":
        """A small gallery, contenders that need no engine, no serving."""
        return replace(
            self,
            sizes=(1000,),
            embedding_size=8,
            num_queries=20,
            neighbors=5,
            repeats=1,
            contenders=self.contenders or ("ExactIndex", "ExactIndex int8"),
            serving=False,
        )


def clustered(count: int, settings: Settings, seed: int) -> np.ndarray:
    """Returns unit vectors around a thousand centers."""
    centers = np.random.default_rng(0).standard_normal(
        (1000, settings.embedding_size), dtype="float32"
    )
    rng = np.random.default_rng(seed)
    rows = centers[rng.integers(1000, size=count)]
    rows = rows + rng.standard_normal(rows.shape, dtype="float32")
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def compare(count: int, settings: Settings) -> list[Measurement]:
    """Runs every contender on one gallery."""
    names = list(settings.contenders or CONTENDERS)
    if count > settings.graphs_up_to:
        names = [name for name in names if name not in GRAPHS]
    with tempfile.TemporaryDirectory() as folder:
        for name, size in (
            ("gallery", count),
            ("queries", settings.num_queries),
        ):
            rows = clustered(size, settings, 1 + (name == "queries"))
            np.save(f"{folder}/{name}.npy", rows)
        runs = {
            name: _run(name, folder, settings)
            for name in tqdm(names, desc=f"{count} items")
        }
        runs = {name: run for name, run in runs.items() if run is not None}
        true = np.load(next(runs[n]["found"] for n in EXACT if n in runs))
        return [
            _measurement(name, run, true, settings)
            for name, run in runs.items()
        ]


def serve(settings: Settings) -> list[Measurement]:
    """Sends JPEG images of 256 pixels to every signature of a SavedModel."""
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as folder:
        path = settings.model or _untrained(Path(folder) / "model", settings)
        model = tf.saved_model.load(str(path))
        pixels = np.random.default_rng(0).integers(0, 255, (16, 16, 3))
        pixels = np.kron(pixels, np.ones((16, 16, 1))).astype("uint8")
        image = tf.io.encode_jpeg(pixels)
        batch = tf.repeat(image[None], settings.batch_size)
        found = []
        for name in ("embed", "search_exact"):
            signature = model.signatures[name]
            signature(image_bytes=batch)
            seconds = []
            for _ in range(10 * settings.repeats):
                start = time.perf_counter()
                signature(image_bytes=batch)["status"].numpy()
                seconds.append(time.perf_counter() - start)
            rate = settings.batch_size / np.median(seconds)
            facts = {"images/s": f"{rate:.0f}"}
            found.append(Measurement(name, tuple(seconds), facts))
        return found


def measure(settings: Settings) -> Iterator[Table]:
    """Yields a table for each size, and one for serving."""
    for count in settings.sizes:
        rows = compare(count, settings)
        yield ratio_table(
            rows,
            f"{settings.num_queries:,} queries, {settings.neighbors} "
            f"neighbors among {count:,} x {settings.embedding_size}",
        )
    if settings.serving:
        yield ratio_table(
            serve(settings),
            f"Requests of {settings.batch_size} JPEG images, 256 pixels",
            "signature",
        )


def main(arguments: list[str] | None = None) -> None:
    """Prints the tables."""
    settings = tyro.cli(Settings, description=__doc__, args=arguments)
    run_benchmark(
        "benchmarks.retrieval",
        "Search in galleries",
        __doc__,
        settings,
        measure,
    )


def _run(name, folder, settings):
    arguments = [name, folder, settings.neighbors, settings.repeats]
    answer = subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        capture_output=True,
        text=True,
    )
    if answer.returncode:
        tqdm.write(f"{name}: left out: {answer.stderr.splitlines()[-1]}")
        return None
    return json.loads(answer.stdout.splitlines()[-1])


def _measurement(name, run, true, settings):
    found = np.load(run["found"])
    shared = [
        len(np.intersect1d(one, other)) / settings.neighbors
        for one, other in zip(found, true, strict=True)
    ]
    rate = settings.num_queries / np.median(run["seconds"])
    facts = {
        "queries/s": f"{rate:,.0f}",
        "busy": f"{np.median(run['busy_seconds']):.3g} s",
        "one query": f"{np.median(run['single_seconds']) * 1e3:.3g} ms",
        "built in": f"{run['build_seconds']:.2f} s",
        "memory grows by": f"{run['growth_mb']:,.0f} MB",
        "bytes an item": _bytes(name, settings.embedding_size),
        "recall": f"{np.mean(shared):.4f} ± {_half_width(shared):.4f}",
    }
    return Measurement(name, tuple(run["seconds"]), facts)


def _bytes(name, size):
    """Bytes of the engine and of the vectors, for example `16 + 512`."""
    if name not in BYTES:
        return ""
    parts = [each * size + more for each, more in BYTES[name]]
    return " + ".join(f"{part:.0f}" for part in parts)


def _half_width(shares):
    """Half the width of the mean's 95 % interval over the queries."""
    return 1.96 * np.std(shares, ddof=1) / np.sqrt(len(shares))


def _untrained(path, settings):
    import keras

    import keras_gsp as gsp

    inputs = keras.Input((224, 224, 3))
    network = keras.applications.MobileNetV2(
        input_shape=(224, 224, 3), alpha=0.35, include_top=False, weights=None
    )
    features = network(keras.layers.Rescaling(1 / 127.5, -1.0)(inputs))
    encoder = gsp.models.build_encoder(
        keras.Model(inputs, features),
        embedding_size=settings.embedding_size,
        pooling=gsp.layers.GeneralizedSumPooling(),
    )
    index = gsp.retrieval.ExactIndex(clustered(10_000, settings, 1))
    gsp.retrieval.export_retriever(
        encoder, index, path, crop_fraction=224 / 256
    )
    return path


if __name__ == "__main__":
    main()
