"""Search in galleries of any size, beside faiss and NumPy; and serving.

    python -m training.benchmarks.retrieval --json docs/results/search.json

Embeddings are clustered unit vectors. Each contender runs in a process of its
own; memory is what the process grows by while it builds and searches, the
gallery itself not counted. faiss comes with the `milvus` extra; a contender
whose engine is missing is left out. `busy` is the time all processors worked
for the queries, which other work on the machine does not lengthen; one query
is the median of 20 that come alone. At the end, images a second of a whole
SavedModel, and what 1e9 vectors would take, on paper.
"""

import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from tqdm import tqdm

from training.benchmarks.ratio_table import Measurement, ratio_table
from training.benchmarks.search_contender import CONTENDERS
from training.results.markdown import markdown_table
from training.results.records import keep_table

SCRIPT = Path(__file__).with_name("search_contender.py")
PAPER_HEADINGS = (
    "items",
    "GB float32",
    "GB float16",
    "GB int8",
    "GB HNSW",
    "seconds a query, exact",
    "hosts of 64 GB for HNSW",
)


@dataclass
class Settings:
    """What to measure."""

    sizes: tuple[int, ...] = (10_000, 60_000, 500_000)
    """Sizes of the gallery."""
    embedding_size: int = 128
    num_queries: int = 1000
    neighbors: int = 10
    repeats: int = 3
    contenders: tuple[str, ...] = ()
    """Some of the contenders by name; by default all. Recalls are of the
    first of faiss flat, NumPy and ExactIndex."""
    serving: bool = True
    """Whether to serve images too."""
    json: Path | None = None
    """File for the tables, which a page of results is made of."""
    model: Path | None = None
    """Exported retriever to serve images with; by default an untrained
    MobileNetV2 (0.35, 224 pixels) with GSP and 10,000 items is made."""
    batch_size: int = 32
    """Images in one request."""


def clustered(count: int, settings: Settings, seed: int) -> np.ndarray:
    """Returns unit vectors around a thousand centres."""
    centres = np.random.default_rng(0).standard_normal(
        (1000, settings.embedding_size), dtype="float32"
    )
    rng = np.random.default_rng(seed)
    rows = centres[rng.integers(1000, size=count)]
    rows = rows + rng.standard_normal(rows.shape, dtype="float32")
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def compare(count: int, settings: Settings) -> list[Measurement]:
    """Runs every contender on one gallery."""
    names = settings.contenders or tuple(CONTENDERS)
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/gallery.npy", clustered(count, settings, 1))
        queries = clustered(settings.num_queries, settings, 2)
        np.save(f"{folder}/queries.npy", queries)
        runs = {
            name: _run(name, folder, settings)
            for name in tqdm(names, desc=f"{count} items")
        }
        runs = {name: run for name, run in runs.items() if run is not None}
        exact = ("faiss flat", "NumPy", "ExactIndex")
        true = np.load(next(runs[n]["found"] for n in exact if n in runs))
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


def paper(
    settings: Settings, seconds: float, count: int
) -> list[tuple[str, ...]]:
    """What larger galleries take, from bytes a vector and measured seconds.

    Args:
        settings: for the size of a vector.
        seconds: of one query among `count` items, compared with all.
        count: items of that gallery.

    Returns:
        Rows: items, GB in float32, float16 and int8, GB of an HNSW graph of
        32 links (float32), seconds a query on one host of this kind, hosts of
        64 GB for the graph.
    """
    rows = []
    for items in (10**6, 10**7, 10**8, 10**9):
        gigabytes = [
            items * (settings.embedding_size * width + extra) / 1e9
            for width, extra in ((4, 0), (2, 0), (1, 4), (4, 4 * 2 * 32))
        ]
        rows.append(
            (
                f"{items:.0e}",
                *(f"{one:,.1f}" for one in gigabytes),
                f"{seconds * items / count:,.2f}",
                f"{int(np.ceil(gigabytes[-1] / 64))}",
            )
        )
    return rows


def main() -> None:
    """Prints a table for each size, one for serving, and one on paper."""
    settings = tyro.cli(Settings, description=__doc__)
    kept = []
    alone = None
    for count in settings.sizes:
        rows = compare(count, settings)
        print(
            f"\n{settings.num_queries} queries, {settings.neighbors} "
            f"neighbours among {count} x {settings.embedding_size}\n"
        )
        print(ratio_table(rows))
        first = np.median(rows[0].seconds)
        for row in rows:
            median = np.median(row.seconds)
            ratio = f"{median / first:.2f}"
            facts = row.facts.values()
            kept.append(
                (f"{count:,}", row.name, f"{median:.4g}", ratio, *facts)
            )
            if row.name == "ExactIndex":
                alone = float(row.facts["one query"].split()[0]) / 1e3, count
    headings = ("items", "", "seconds", "ratio", *rows[0].facts)
    if settings.serving:
        served = serve(settings)
        print(f"\nRequests of {settings.batch_size} JPEG images, 256 pixels\n")
        print(ratio_table(served))
    about = (
        f"{settings.num_queries} queries of {settings.neighbors} neighbours, "
        f"{settings.embedding_size} numbers each; ratios to {rows[0].name}."
    )
    if alone is not None:
        print("\nOn paper\n")
        lines = paper(settings, *alone)
        names = PAPER_HEADINGS
        print(markdown_table(names, lines, num_left=0))
        about += " On paper, from bytes and the slope of one query among all:"
        for line in lines:
            said = ", ".join(
                f"{name} {value}"
                for name, value in zip(names, line, strict=True)
            )
            about += f" {said}."
    if settings.json is not None:
        shown = {
            name: value
            for name, value in dataclasses.asdict(settings).items()
            if name not in ("json", "model", "contenders")
        }
        keep_table(
            settings.json,
            "Search in galleries",
            headings,
            kept,
            command="python -m training.benchmarks.retrieval",
            about=about,
            num_left=2,
            settings=shown,
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
        "recall": f"{np.mean(shared):.4f}",
    }
    return Measurement(name, tuple(run["seconds"]), facts)


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
