"""Search in galleries of 10k to 500k, beside NumPy and faiss; and serving.

    python -m training.benchmarks.retrieval --faiss-python /path/to/bin/python

Embeddings are clustered unit vectors. Each contender runs in a process of its
own; memory is what the process grows by while it builds and searches, the
gallery itself not counted. faiss is taken from the other interpreter, and
left out without one. Aim: 500,000 x 128 exactly in less than 1.5 GB. At the
end, images a second of a whole SavedModel.
"""

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

SCRIPT = Path(__file__).with_name("search_contender.py")


@dataclass
class Settings:
    """What to measure."""

    sizes: tuple[int, ...] = (10_000, 60_000, 500_000)
    """Sizes of the gallery."""
    embedding_size: int = 128
    num_queries: int = 1000
    neighbors: int = 10
    repeats: int = 3
    faiss_python: Path | None = None
    """Interpreter that has faiss-cpu."""
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
    contenders = dict.fromkeys(
        ("ExactIndex", "ScannIndex", "NumPy"), sys.executable
    )
    if settings.faiss_python is not None:
        contenders |= dict.fromkeys(
            ("faiss flat", "faiss HNSW"), settings.faiss_python
        )
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/gallery.npy", clustered(count, settings, 1))
        queries = clustered(settings.num_queries, settings, 2)
        np.save(f"{folder}/queries.npy", queries)
        runs = {
            name: _run(python, name, folder, settings)
            for name, python in tqdm(contenders.items(), desc=f"{count} items")
        }
        true = np.load(runs["NumPy"]["found"])
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


def main() -> None:
    """Prints a table for each size and one for serving."""
    settings = tyro.cli(Settings, description=__doc__)
    for count in settings.sizes:
        rows = compare(count, settings)
        print(
            f"\n{settings.num_queries} queries, {settings.neighbors} "
            f"neighbours among {count} x {settings.embedding_size}\n"
        )
        print(ratio_table(rows))
    rows = serve(settings)
    print(f"\nRequests of {settings.batch_size} JPEG images, 256 pixels\n")
    print(ratio_table(rows))


def _run(python, name, folder, settings):
    arguments = [name, folder, settings.neighbors, settings.repeats]
    answer = subprocess.run(
        [str(python), str(SCRIPT), *map(str, arguments)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
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
