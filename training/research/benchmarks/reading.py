"""What reading photographs costs, and whether copies stay alike.

    python -m training.research.benchmarks.reading --photographs FOLDER --backbone-weights FILE --json docs/results/reading.json

JPEG files of four sizes become (224, 224, 3), on one and on two cores, in turns. The unit
is Pillow with `draft`, which decodes a JPEG at the scale that is needed, in as many
threads. With `--photographs` (files of 4 megapixels or more) MobileNetV2 and GeM embed
each, a copy of 800 pixels and a random crop of 35 to 60 % of it: the distance of
the copy, that of the nearest other photograph, and how often a crop finds its own.
"""

import contextlib
import io
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import keras_gsp as gsp
from training.research.experiments.heads import mobilenet
from training.research.report import (
    CommandSettings,
    Table,
    ratio_table,
    run_measurement,
)

SIZE = 224
CUT = gsp.data.Preprocessing.for_application("MobileNetV2", SIZE, SIZE)
ENDINGS = ".jpg", ".jpeg", ".png", ".JPG", ".webp"
# Height and width.
SIDES = {"227 pixels": (227, 227), "2 MP": (1200, 1600)}
SIDES |= {"12 MP": (3000, 4000), "24 MP": (4000, 6000)}


@dataclass(frozen=True, kw_only=True)
class Settings(CommandSettings):
    """What to measure."""

    counts: tuple[int, ...] = (256, 32, 12, 8)
    """Files of each size."""
    repeats: int = 5
    photographs: Path | None = None
    backbone_weights: Path | None = None

    SMALL = {"counts": (2, 1), "repeats": 1}


def encoded(image: Image.Image, kind: str = "JPEG") -> bytes:
    """The image as a file."""
    file = io.BytesIO()
    image.save(file, kind, quality=90)
    return file.getvalue()


def by_pillow(file: Any, draft: bool = True) -> np.ndarray:
    """The central square, anti-aliased, as anybody would with Pillow."""
    image, box = square(file, draft)
    return np.asarray(
        image.resize((SIZE, SIZE), Image.Resampling.BILINEAR, box)
    )


def not_anti_aliased(contents: bytes) -> np.ndarray:
    """The central square; each pixel is made of the nearest four."""
    image, box = square(io.BytesIO(contents), False)
    options = (
        (SIZE, SIZE),
        Image.Transform.EXTENT,
        box,
        Image.Resampling.BILINEAR,
    )
    return np.asarray(image.convert("RGB").transform(*options))


def square(file: Any, draft: bool) -> tuple[Any, tuple]:
    """An image and its central square."""
    image = Image.open(file)
    if draft:
        image.draft("RGB", (2 * SIZE, 2 * SIZE))
    side = min(image.size)
    left, top = ((length - side) // 2 for length in image.size)
    return image, (left, top, left + side, top + side)


def readers() -> dict[str, Callable[[list[str], int], int]]:
    """Name -> a function of files and workers that reads all of them."""

    def threads(function):
        def read(files, workers):
            with ThreadPoolExecutor(workers) as pool:
                return len(list(pool.map(function, files)))

        return read

    def ours(files, workers):
        return sum(map(len, gsp.data.image_batches(files, preprocessing=CUT)))

    found = {"Pillow with draft": threads(by_pillow), "image_batches": ours}
    found["Pillow, decoded whole"] = threads(lambda f: by_pillow(f, False))
    with contextlib.suppress(ImportError):
        import tensorflow as tf

        def decoded(file):
            pixels = tf.io.decode_jpeg(tf.io.read_file(file), channels=3)
            return tf.image.resize(pixels, (SIZE, SIZE))

        def by_tensorflow(files, workers):
            data = tf.data.Dataset.from_tensor_slices(files)
            data = data.map(decoded, num_parallel_calls=workers)
            return sum(1 for _ in data)

        found["TensorFlow, not anti-aliased"] = by_tensorflow
    with contextlib.suppress(ImportError):
        from torchvision.io import decode_image
        from torchvision.transforms.v2.functional import resize

        size = [SIZE, SIZE]
        found["torchvision"] = threads(lambda f: resize(decode_image(f), size))
    return found


def times(folder: Path, settings: Settings) -> Iterator[Table]:
    """Yields ratios of seconds, one table for each size and number of cores."""
    cores = sorted(os.sched_getaffinity(0))
    for (name, sides), count in zip(
        SIDES.items(), settings.counts, strict=False
    ):
        few = np.random.default_rng(0).integers(0, 256, (40, 60, 3), "uint8")
        content = encoded(
            Image.fromarray(few).resize(sides[::-1], Image.Resampling.BICUBIC)
        )
        files = [str(folder / f"{name}{n}.jpg") for n in range(count)]
        for file in files:
            Path(file).write_bytes(content)
        for workers in range(1, min(2, len(cores)) + 1):
            os.sched_setaffinity(0, cores[:workers])
            seconds: dict[str, list] = {reader: [] for reader in readers()}
            for turn in range(settings.repeats + 1):
                for reader, read in readers().items():
                    start = time.perf_counter()
                    read(files, workers)
                    if turn:  # The first one warms up.
                        seconds[reader].append(time.perf_counter() - start)
            rows = {
                reader: (
                    own,
                    {"images a second": f"{count / np.median(own):.0f}"},
                )
                for reader, own in seconds.items()
            }
            yield ratio_table(rows, f"{name}, {workers} core(s)")
        os.sched_setaffinity(0, cores)


def copies(settings: Settings) -> Table:
    """Distances between photographs, their copies and their crops."""
    encoder = gsp.models.build_encoder(
        mobilenet(SIZE, settings.backbone_weights),
        embedding_size=None,
        pooling=gsp.layers.GeneralizedMeanPooling(),
        preprocessing=CUT,
    )
    files = sorted(Path(settings.photographs or ".").rglob("*"))
    files = [f for f in files if f.suffix in ENDINGS and not f.is_symlink()]
    contents = [file.read_bytes() for file in files]
    sides = [gsp.data.image_size(content) for content in contents]
    kept = [n for n, (h, w) in enumerate(sides) if h * w >= 4e6]
    random = np.random.default_rng(0)
    variants: tuple[list, ...] = ([], [], [])
    for n in kept:
        image = Image.open(io.BytesIO(contents[n])).convert("RGB")
        share = random.uniform(0.35, 0.6) ** 0.5
        start = random.uniform(0, 1 - share, 2)
        box = np.tile(image.size, 2) * [*start, *(start + share)]
        crop = encoded(image.crop(box.astype(int)))
        image.thumbnail((800, 800), Image.Resampling.LANCZOS)
        parts = contents[n], encoded(image, "PNG"), crop
        for variant, part in zip(variants, parts, strict=True):
            variant.append(part)
    rows = []
    ways = {"image_batches": CUT.decode, "not anti-aliased": not_anti_aliased}
    for name, cut in ways.items():
        whole, copy, crop = (
            encoder.predict(np.stack([*map(cut, part)]), verbose=0)
            for part in variants
        )
        moved = np.linalg.norm(whole - copy, axis=1)
        apart = np.linalg.norm(whole[:, None] - whole, axis=2)
        first = np.linalg.norm(crop[:, None] - whole, axis=2).argmin(1)
        others = np.sort(apart + 9 * np.eye(len(kept)), axis=1)[:, 0]
        right = 100 * np.mean(first == np.arange(len(kept)))
        cells = moved.mean(), moved.max(), others.min(), np.median(others)
        rows.append([name, *(f"{cell:.3f}" for cell in cells), f"{right:.1f}"])
    headings = ["", "copy, mean", "copy, largest", "nearest other"]
    headings += ["nearest other, median", "crops found first, %"]
    return Table(headings, rows, 1, f"{len(kept)} photographs of 4 MP or more")


def measure(settings: Settings) -> Iterator[Table]:
    """Yields the tables of times, then that of copies."""
    with tempfile.TemporaryDirectory() as folder:
        yield from times(Path(folder), settings)
    if settings.photographs is not None:
        yield copies(settings)


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
