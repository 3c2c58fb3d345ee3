"""Encoders of frozen features that train in seconds: `upgrade`, `guarantee`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

import keras_gsp as gsp
from keras_gsp.data import image_folder
from training.recipes.data import load_splits
from training.recipes.features import image_features
from training.recipes.named import named
from training.research.report import ExperimentSettings
from training.research.studies import CHARACTERS

SIDES = {"emoji": 128, "birds50": 160}
LOSSES = {
    "C2": gsp.losses.ContrastiveLoss(0.2858, 0.5130),
    "MS": gsp.losses.MultiSimilarityLoss(),
}


@dataclass(frozen=True, kw_only=True)
class FrozenSettings(ExperimentSettings):
    """Data, backbones, training."""

    data_dirs: tuple[Path, ...] = ()
    """Image folders or archives, such as `emoji.zip`; random clusters by
    default."""
    weights: tuple[Path, ...] = ()
    """ImageNet weights of MobileNetV2, alpha 0.35 and alpha 1.0."""
    num_classes: int = 400
    """Largest number of classes of a data set, drawn at random."""
    glyphs: bool = True
    """Also the letters among symbols, with the network of single characters."""
    steps: int = 200
    """Steps of a head, 16 classes with 4 images each."""
    seeds: tuple[int, ...] = (0,)

    SMALL = {"data_dirs": (), "glyphs": False}


@dataclass(frozen=True)
class Features:
    """Feature maps (items, height, width, channels) of one data set."""

    name: str
    maps: Any
    labels: Any
    styles: Any
    width: int | None = None
    """Channels of the first backbone, where there are two."""

    def split(self, seed: int = 0) -> Any:
        """Mask of the images of a random half of the classes."""
        names = np.random.default_rng(seed).permutation(np.unique(self.labels))
        return np.isin(self.labels, names[: len(names) // 2])


def features_of(
    settings: FrozenSettings, alphas: tuple[float, ...]
) -> list[Features]:
    """Feature maps of every data set, channels of all backbones together."""
    found = [_glyphs()] if settings.glyphs else []
    if not settings.data_dirs and not found:
        found = [_clusters(len(alphas))]
    for source in settings.data_dirs:
        images = image_folder(source)
        name = source.name.split(".")[0]
        files = dict(zip((0.35, 1.0), settings.weights, strict=False))
        rows = _drawn(images.labels, settings.num_classes)
        maps = [
            _maps(name, images, files[alpha], alpha)[rows] for alpha in alphas
        ]
        width = None
        if len(maps) > 1:
            # Averages are enough for heads with average pooling.
            maps = [_unit(one.mean((1, 2), "float32")) for one in maps]
            width = maps[0].shape[1]
            maps = [np.concatenate(maps, axis=1)[:, None, None]]
        styles = np.array([Path(path).stem for path in images.paths])
        labels = images.labels[rows]
        found.append(Features(name, maps[0], labels, styles[rows], width))
    return found


def trained_encoder(
    features: Features,
    rows: Any,
    *,
    loss: str = "C2",
    size: int = 128,
    seed: int = 0,
    steps: int = 300,
    pooling: Any = None,
    channels: slice = slice(None),
    teacher: Any = None,
) -> keras.Model:
    """Trains projection and pooling on the images of a mask.

    With a teacher, an encoder, embeddings also stay near its own.
    """
    keras.utils.set_random_seed(seed)
    inputs = keras.Input(features.maps.shape[1:])
    encoder = gsp.models.build_encoder(
        keras.Model(inputs, inputs[..., channels]),
        embedding_size=size,
        pooling=pooling,
    )
    learner, used = encoder, LOSSES[loss]
    if teacher is not None:
        learner = gsp.models.MetricLearner(encoder)
        used = gsp.losses.DistillationLoss(used)
    learner.compile(keras.optimizers.AdamW(1e-3, weight_decay=1e-4), loss=used)
    rng = np.random.default_rng(seed)
    known = np.flatnonzero(rows)
    labels = features.labels[known]
    members = [known[labels == name] for name in np.unique(labels)]
    count = min(16, len(members))
    for _ in range(steps):
        chosen = rng.choice(len(members), count, replace=False)
        batch = np.concatenate([rng.choice(members[c], 4) for c in chosen])
        pixels = np.asarray(features.maps[batch], "float32")
        classes: Any = features.labels[batch]
        if teacher is not None:
            near = teacher.predict_on_batch(pixels)
            classes = {"label": classes, "teacher": near}
        learner.train_on_batch(pixels, classes)
    return encoder


def embedded(encoder: keras.Model, maps: Any) -> Any:
    """Embeddings of feature maps, (items, size)."""
    parts = [
        encoder.predict_on_batch(np.asarray(maps[i : i + 512], "float32"))
        for i in range(0, len(maps), 512)
    ]
    return np.concatenate(parts)


def _drawn(labels, count):
    """Rows of a random choice of classes."""
    names = np.random.default_rng(0).permutation(np.unique(labels))
    return np.flatnonzero(np.isin(labels, names[:count]))


def _unit(rows):
    """Rows whose numbers are 1 on average."""
    return rows / np.sqrt(np.mean(np.square(rows), axis=1, keepdims=True))


def _maps(name, images, weights, alpha):
    """Feature maps in float16, computed once."""
    side = SIDES.get(name, 160)
    recipe = named("folder-features").with_(
        backbone_width=alpha,
        backbone_weights=str(weights),
        crop_size=side,
        resize=side,
    )
    return image_features(recipe, images).images


def _glyphs():
    """Feature maps of `glyphs` by the network of single characters."""
    splits = load_splits(CHARACTERS)
    sides = splits.validation, splits.test
    labels = [sides[0].labels, sides[1].labels + sides[0].num_classes]
    maps = np.concatenate([side.images for side in sides])
    joined = np.concatenate(labels)
    return Features("glyphs", maps, joined, np.full(len(joined), ""))


def _clusters(num_parts):
    """Features of random classes, for a smoke test."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(64), 6)
    centers = rng.normal(size=(64, 1, 1, 16 * num_parts))
    noise = rng.normal(size=(384, 2, 2, 16 * num_parts))
    styles = np.tile(list("abcdef"), 64)
    maps = (centers[labels] + noise).astype("float32")
    width = 16 if num_parts > 1 else None
    return Features("clusters", maps, labels, styles, width)
