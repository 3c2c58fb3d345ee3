"""Reading images, and training on them.

    python -m training.research.benchmarks.pipeline --data-dir FOLDER

Measured in turns: batches alone (read, decode the crop, resize, flip), a step
of average pooling and one of GSP on a batch in memory, and both together. Cores
are processor seconds per second; batches alone should use all of them. Every
file is read once beforehand, so that the disk is not measured. Without
`--data-dir` the images are smooth noise of 500 x 375 pixels.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice, repeat
from pathlib import Path

import numpy as np

from keras_gsp.data import ImageSet, image_folder
from training.recipes.recipe import Recipe
from training.research.report import (
    CommandSettings,
    Measurement,
    Table,
    ratio_table,
    run_measurement,
)

# Batches that may have been read before their turn.
BUFFERED = 4


@dataclass(frozen=True, kw_only=True)
class Settings(CommandSettings):
    """What to measure."""

    data_dir: str | None = None
    """Image folder or archive of one."""
    classes_per_batch: int = 8
    samples_per_class: int = 4
    crop_size: int = 227
    backbone: str = "mobilenet-v2"
    """Backbone of the whole step, at random weights."""
    batches: int = 20
    """Batches in one timed run."""
    repeats: int = 5
    made_classes: int = 16
    """Classes of made images, with 8 images each."""

    SMALL = {
        "crop_size": 16,
        "backbone": "glyph-cnn",
        "batches": 1,
        "repeats": 1,
        "classes_per_batch": 2,
        "samples_per_class": 2,
        "made_classes": 2,
    }


def made_images(folder: Path, num_classes: int) -> Path:
    """Writes JPEGs of the size of photographs; returns their folder."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for label in range(num_classes):
        (folder / f"{label:03d}").mkdir()
        for number in range(8):
            small = rng.integers(0, 256, (38, 50, 3)).astype("uint8")
            large = Image.fromarray(small).resize((500, 375))
            large.save(folder / f"{label:03d}" / f"{number}.jpg", quality=90)
    return folder


def contenders(
    settings: Settings, images: ImageSet
) -> dict[str, Callable[[int], object]]:
    """Name -> function that reads or trains so many batches."""
    from training.recipes.batches import image_shape, training_batches
    from training.recipes.learner import build_learner

    recipe = Recipe.of(
        dataset="folder",
        backbone=settings.backbone,
        frozen="batch-norm",
        crop_size=settings.crop_size,
        classes_per_batch=settings.classes_per_batch,
        samples_per_class=settings.samples_per_class,
        augmentation="mlrc-area",
        transport_ratio=0.3,
        inverse_temperature=5.0,
    )
    found: dict[str, Callable[[int], object]] = {}
    for augmentation in ("mlrc-area", "mlrc", "none"):
        cut = recipe.with_(augmentation=augmentation)
        batches = training_batches(cut, images).as_numpy_iterator()
        found[f"batches, {augmentation}"] = partial(_read, batches)
    fixed = next(iter(training_batches(recipe, images)))
    for pooling in ("gap", "gsp"):
        learner = build_learner(
            recipe.with_(pooling=pooling),
            num_classes=images.num_classes,
            image_shape=image_shape(recipe, images),
        )
        for name, batches in (
            ("step", repeat(fixed)),
            ("batches and step", iter(training_batches(recipe, images))),
        ):
            found[f"{name}, {pooling}"] = partial(_train, learner, batches)
    return found


def _read(batches, count):
    return list(islice(batches, count))


def _train(learner, batches, count):
    for batch in islice(batches, count):
        learner.train_on_batch(*batch)


def timed(run: Callable[[int], object], count: int) -> tuple[float, float]:
    """Seconds, and seconds of all processors together, of so many batches."""
    run(BUFFERED)
    start, start_used = time.perf_counter(), time.process_time()
    run(count)
    return time.perf_counter() - start, time.process_time() - start_used


def compare(settings: Settings, images: ImageSet) -> Table:
    """Measures all contenders in turns; ratios are to the first."""
    for path in images.paths:
        Path(path).read_bytes()
    runs = contenders(settings, images)
    size = settings.classes_per_batch * settings.samples_per_class
    for run in runs.values():
        run(2)  # traces
    times: dict[str, list] = {name: [] for name in runs}
    for _ in range(settings.repeats):
        for name, run in runs.items():
            times[name].append(timed(run, settings.batches))
    rows = []
    for name, pairs in times.items():
        seconds, used = np.transpose(pairs) / settings.batches
        facts = {
            "images/s": f"{size / np.median(seconds):,.0f}",
            "cores": f"{np.median(used / seconds):.2f}",
        }
        rows.append(Measurement(name, tuple(seconds), facts))
    return ratio_table(
        rows,
        f"One batch of {settings.classes_per_batch} classes x "
        f"{settings.samples_per_class}, crops of {settings.crop_size} "
        f"pixels, {settings.backbone}",
    )


def measure(settings: Settings) -> Iterator[Table]:
    """Compares on a folder, or on images made for it."""
    with tempfile.TemporaryDirectory() as folder:
        source: str | Path | None = settings.data_dir
        if source is None:
            source = made_images(Path(folder), settings.made_classes)
        yield compare(settings, image_folder(source))


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
