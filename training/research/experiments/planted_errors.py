"""How many planted wrong labels and copies does the doctor find?

    python -m training.research.experiments.planted_errors --data-dirs emoji.zip \
        --sizes 128 --weights mobilenet_v2.weights.h5

`gsp.retrieval.suspects` on features of a frozen MobileNetV2 (averaged, or
whitened to 128 numbers), after 2 % of the labels were changed (to any class, or
to one of the three most similar), 1 % of the images were copied (resized by 0.7
to 1.5 and encoded again as JPEG of quality 50 to 90; or mirrored and cropped to
90 %) and 1 % of the classes were divided in two. The thresholds were chosen on
one half of the classes; the numbers are those of the other half. What is found
without planting (`before`) are errors of the collection itself and false
alarms; the precision counts it as false.
"""

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

import keras_gsp as gsp
from training.research.benchmarks.pipeline import made_images
from training.research.report import (
    CommandSettings,
    Table,
    mean_and_deviation,
    run_measurement,
    spread,
)

LIKELY = 3
# Seed that chose the half of the classes for the thresholds.
SPLIT_SEED = 1
# Shares of the labels, images and classes with an error.
WRONG, COPIED, DIVIDED = 0.02, 0.01, 0.01
KINDS = {
    "wrong label, any class": "wrong_labels",
    "wrong label, similar class": "wrong_labels",
    "copy, encoded again": "duplicates",
    "copy, mirrored and cropped": "duplicates",
    "class divided in two": "same_classes",
}
MEASURES = "planted", "found", "before", "precision", "recall"


@dataclass(frozen=True, kw_only=True)
class Settings(CommandSettings):
    """Collections, and what is planted."""

    data_dirs: tuple[Path, ...] = ()
    """Image folders or archives; none: pictures of noise."""
    sizes: tuple[int, ...] = (128,)
    """Side of the images of each, pixels."""
    weights: Path | None = None
    """Weights of MobileNetV2 (alpha 0.35, 224 pixels, no top)."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """One planting each."""

    SMALL = {"data_dirs": (), "sizes": (32,), "seeds": (0,)}


class Collection:
    """Images of half the classes, and the features of a frozen network."""

    def __init__(self, images: Any, size: int, weights: Path | None) -> None:
        shape = (size, size, 3)
        network = keras.applications.MobileNetV2(
            shape, alpha=0.35, include_top=False, weights=None
        )
        if weights is not None:
            network.load_weights(weights)
        average = keras.layers.GlobalAveragePooling2D()
        scale = keras.layers.Rescaling(1 / 127.5, offset=-1)
        self._network = keras.Sequential(
            [keras.Input(shape), scale, network, average]
        )
        self._cut = gsp.data.Preprocessing(size, size)
        self.images = images
        self.features = self.embedded(images.paths)

    def embedded(self, paths: Any) -> np.ndarray:
        """Features of files."""
        batches = gsp.data.evaluation_batches(
            list(paths), preprocessing=self._cut
        )
        return self._network.predict(batches, verbose=0)


def planted(
    collection: Collection, kind: str, seed: int
) -> tuple[np.ndarray, np.ndarray, set[Any]]:
    """Returns features and labels with errors, and the errors' places."""
    rng = np.random.default_rng(seed)
    features, images = collection.features, collection.images
    labels, count = images.labels.copy(), len(images)
    if kind.startswith("copy"):
        some = rng.choice(count, round(COPIED * count), replace=False)
        with tempfile.TemporaryDirectory() as folder:
            is_mirrored = kind.endswith("cropped")
            files = [
                copied(
                    images.paths[i], Path(folder, f"{i}.jpg"), is_mirrored, rng
                )
                for i in some
            ]
            features = np.concatenate([features, collection.embedded(files)])
        pairs = {(int(i), count + k) for k, i in enumerate(some)}
        return features, np.append(labels, labels[some]), pairs
    if kind.startswith("class"):
        number = max(2, round(DIVIDED * images.num_classes))
        pairs = set()
        for one in rng.choice(images.num_classes, number, replace=False):
            members = rng.permutation(np.flatnonzero(labels == one))
            labels[members[: len(members) // 2]] = labels.max() + 1
            pairs.add((int(one), int(labels.max())))
        return features, labels, pairs
    some = rng.choice(count, round(WRONG * count), replace=False)
    others = likely_classes(features, images.labels)
    width = LIKELY if kind.endswith("similar class") else others.shape[1]
    labels[some] = others[labels[some], rng.integers(width, size=len(some))]
    return features, labels, set(some.tolist())


def likely_classes(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(classes, classes - 1), the other classes, most similar first."""
    means = np.stack(
        [features[labels == one].mean(axis=0) for one in np.unique(labels)]
    )
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    products = means @ means.T
    np.fill_diagonal(products, np.inf)
    return np.argsort(-products, axis=1)[:, 1:]


def copied(source: str, target: Path, is_mirrored: bool, rng: Any) -> Path:
    """Writes another version of a picture."""
    from PIL import Image, ImageOps

    with Image.open(source) as opened:
        image = opened.convert("RGB")
    width, height = image.size
    if is_mirrored:
        left, top = rng.integers(0, (width // 10 + 1, height // 10 + 1))
        box = (left, top, left + 9 * width // 10, top + 9 * height // 10)
        ImageOps.mirror(image).crop(box).save(target, quality=95)
        return target
    factor = rng.uniform(0.7, 1.5)
    size = max(1, round(width * factor)), max(1, round(height * factor))
    quality = int(rng.integers(50, 91))
    image.resize(size, Image.Resampling.BICUBIC).save(target, quality=quality)
    return target


def suspected(features: np.ndarray, labels: np.ndarray, is_white: bool) -> Any:
    """The suspects among features, raw or whitened."""
    if is_white:
        size = min(128, features.shape[1])
        whitening = gsp.layers.Whitening(size, shrinkage=0.1)
        whitening.adapt(features)
        features = np.asarray(whitening(features))
    return gsp.retrieval.suspects(features, labels)


def of_kind(found: Any, kind: str) -> set[Any]:
    """Positions, or pairs, of one kind."""
    rows = getattr(found, KINDS[kind])
    rows = rows if isinstance(rows, list) else rows.tolist()
    return {tuple(one) if np.ndim(one) else one for one in rows}


def measure(settings: Settings) -> Iterator[Table]:
    """Yields a table for each collection."""
    with tempfile.TemporaryDirectory() as folder:
        places = settings.data_dirs or (made_images(Path(folder), 20),)
        for place, size in zip(places, settings.sizes, strict=True):
            images = gsp.data.image_folder(place)
            _, images = images.split(seed=SPLIT_SEED)
            collection = Collection(images, size, settings.weights)
            title = (
                f"{place.stem}: {len(images):,} images of "
                f"{images.num_classes:,} classes"
            )
            yield Table(
                ("planted", "features", *MEASURES),
                rows_of(collection, settings),
                2,
                title,
            )


def rows_of(collection: Collection, settings: Settings) -> list[list[str]]:
    """One row for each kind of error and of features."""
    rows = []
    clean = [
        suspected(collection.features, collection.images.labels, is_white)
        for is_white in (False, True)
    ]
    for kind in KINDS:
        for is_white in (False, True):
            before = len(of_kind(clean[is_white], kind))
            runs = []
            for seed in settings.seeds:
                features, labels, truth = planted(collection, kind, seed)
                found = of_kind(suspected(features, labels, is_white), kind)
                right = len(found & truth)
                rates = right / max(1, len(found)), right / len(truth)
                runs.append([len(truth), len(found), before, *rates])
            means = [mean_and_deviation(one) for one in zip(*runs, strict=True)]
            cells = [f"{one['mean']:.0f}" for one in means[:3]]
            cells += [spread(one, digits=2) for one in means[3:]]
            rows.append([kind, "whitened" if is_white else "raw", *cells])
    return rows


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
