"""Embedding a collection by each engine, beside a plain loop.

    python -m training.research.benchmarks.embedding --json docs/results/embedding.json

The images are JPEG files made on the spot, the encoder is a small untrained
network: what is compared is how an engine reads, decodes and writes. The plain
loop is `tf.data` and `predict_on_batch` in one process, and writes nothing.
`first` is the time until the first shard is there, which holds the start of
the engine; images a second are those of the shards after it, and all columns
of time are for as many images.
"""

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from tqdm import tqdm

from training.research.benchmarks.ratio_table import Measurement, ratios
from training.research.benchmarks.report import BenchmarkSettings, run_benchmark
from training.research.results.records import Table

# Seconds until the first shard, then those of all others.
Times = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Settings(BenchmarkSettings):
    """What to measure."""

    num_images: int = 4096
    side: int = 256
    """Pixels of an image's side, before it is cut."""
    crop: int = 96
    """Pixels of the encoder's."""
    filters: int = 32
    shard_size: int = 256
    batch_size: int = 64
    ray_workers: tuple[int, ...] = (1, 2)
    """Numbers of workers of Ray; none leaves Ray out."""
    repeats: int = 1

    def small(self) -> "Settings":
        """Few images, without Ray."""
        return replace(
            self,
            num_images=24,
            side=24,
            crop=16,
            filters=4,
            shard_size=8,
            batch_size=4,
            ray_workers=(),
        )


def measure(settings: Settings) -> Iterator[Table]:
    """Yields one table, the plain loop first."""
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder, "images")
        encoder = Path(folder, "encoder.keras")
        make_images(images, settings)
        make_encoder(encoder, settings)
        engines = {"plain loop": 0, "local": 1}
        for workers in settings.ray_workers:
            engines[f"ray, workers: {workers}"] = workers
        times: dict[str, list[Times]] = {name: [] for name in engines}
        for repeat in tqdm(range(settings.repeats), desc="repetitions"):
            for name, workers in engines.items():
                if name == "plain loop":
                    found = plain_loop(images, encoder, settings)
                else:
                    output = Path(folder, f"{name}, {repeat}")
                    found = by_engine(
                        name, workers, images, encoder, output, settings
                    )
                times[name].append(found)
    rest = settings.num_images - settings.shard_size
    rows = [
        Measurement(
            name,
            tuple(seconds for _, seconds in pairs),
            {
                "images/s": f"{rest / np.median([s for _, s in pairs]):,.0f}",
                "first": f"{np.median([s for s, _ in pairs]):.1f} s",
            },
        )
        for name, pairs in times.items()
    ]
    yield ratios(
        rows,
        f"{rest:,} images of {settings.side} pixels after the first shard of "
        f"{settings.shard_size}",
        "engine",
    )


def make_images(folder: Path, settings: Settings) -> None:
    """Writes JPEG files of noise in large pixels, ten folders of them."""
    import tensorflow as tf

    random = np.random.default_rng(0)
    for number in range(settings.num_images):
        path = folder / f"class {number % 10}" / f"{number:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = random.integers(0, 255, (8, 8, 3))
        zoom = np.ones((settings.side // 8, settings.side // 8, 1))
        pixels = np.kron(coarse, zoom).astype("uint8")
        path.write_bytes(tf.io.encode_jpeg(pixels).numpy())


def make_encoder(path: Path, settings: Settings) -> None:
    """Saves a small network."""
    import keras

    import keras_gsp as gsp

    backbone = keras.Sequential(
        [
            keras.Input((settings.crop, settings.crop, 3)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Conv2D(settings.filters, 5, strides=4),
            keras.layers.ReLU(),
            keras.layers.Conv2D(2 * settings.filters, 3, strides=2),
        ]
    )
    gsp.models.build_encoder(backbone, embedding_size=64).save(path)


def plain_loop(images: Path, encoder: Path, settings: Settings) -> Times:
    """Reads, decodes and embeds in this process, and keeps nothing."""
    import keras

    import keras_gsp as gsp
    from keras_gsp.embeddings.labeled_batches import embedding_of

    start = time.perf_counter()
    model = keras.models.load_model(encoder, compile=False)
    batches = gsp.data.evaluation_batches(
        sorted(map(str, images.rglob("*.jpg"))),
        size=settings.crop,
        resize=settings.crop,
        batch_size=settings.batch_size,
    )
    done, first = 0, start
    for pixels in batches.as_numpy_iterator():
        done += len(embedding_of(model.predict_on_batch(pixels)))
        if done <= settings.shard_size:
            first = time.perf_counter()
    return first - start, time.perf_counter() - first


def by_engine(
    name: str,
    workers: int,
    images: Path,
    encoder: Path,
    output: Path,
    settings: Settings,
) -> Times:
    """Embeds shard by shard, as `training.embed` does."""
    from training.embedding.engines import local_engine, ray_engine
    from training.embedding.sources import shards_of

    output.mkdir()
    shards = shards_of(images, settings.shard_size)
    items = [
        {"number": number, "shard": shard}
        for number, shard in enumerate(shards)
    ]
    options: dict[str, Any] = {
        "encoder": str(encoder),
        "crop_fraction": 1.0,
        "output": str(output),
        "batch_size": settings.batch_size,
    }
    start = time.perf_counter()
    if name == "local":
        written = local_engine(items, options)
    else:
        written = ray_engine(
            items, options, address=None, workers=workers, cpus=1, gpus=0
        )
    ends = [time.perf_counter() for _ in written]
    return ends[0] - start, ends[-1] - ends[0]


def main(arguments: list[str] | None = None) -> None:
    """Prints the table."""
    settings = tyro.cli(Settings, description=__doc__, args=arguments)
    run_benchmark(
        "embedding", "Embedding a collection", __doc__, settings, measure
    )


if __name__ == "__main__":
    main()
