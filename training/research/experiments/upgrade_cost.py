"""What does another encoder cost a gallery that stays as it is?

    python -m training.research.experiments.upgrade_cost --data-dirs birds.zip emoji.zip --backbone-weights FILE --small-weights FILE

MobileNetV2 1.0, GeM, learned whitening to 128 numbers at shrinkage 0.8, fitted to a
third of the classes, is the old encoder; the others are the sample of
`gsp.retrieval.upgrade`, whose certificate a row prints. The new encoder has another
pooling (average), another shrinkage (0.3), the first 64 numbers, or is a MobileNetV2
of width 0.35. MAP@R in %, on classes that neither fitted nor chose the map: `old` has
old queries and items, `mapped` new queries among old items, `new` new queries and
items; `cost` is mapped less old, paired, with a 95 % interval over classes.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import keras
import numpy as np

import keras_gsp as gsp
from keras_gsp.retrieval.space_map import certified_map
from training.research.experiments import whitening
from training.research.report import CommandSettings, Table, run_measurement

HEADINGS = ["what changes", "old", "mapped", "new", "cost", "map"]


@dataclass(frozen=True, kw_only=True)
class Settings(CommandSettings):
    """Data and backbones."""

    data_dirs: tuple[Path, ...] = ()
    """Folders or archives of images."""
    backbone_weights: Path | None = None
    """Weights of MobileNetV2; random by default."""
    small_weights: Path | None = None
    """Weights of MobileNetV2 of width 0.35; random by default."""
    pixels: int = 160
    """Height and width of an image."""
    size: int = 128
    """Size of the old embeddings."""

    SMALL = {"pixels": 32, "size": 4}


def measure(settings: Settings) -> Iterator[Table]:
    """One table a data set."""
    large, small = (
        whitening.Settings(
            width=width, backbone_weights=weights, pixels=settings.pixels
        )
        for width, weights in (
            (1.0, settings.backbone_weights),
            (0.35, settings.small_weights),
        )
    )
    for path in settings.data_dirs:
        images = gsp.data.image_folder(str(path))
        labels = np.asarray(images.labels)
        rows, few = (
            whitening.pooled_rows(whitening.feature_maps(one, images.paths))
            for one in (large, small)
        )
        embed = partial(_embedded, settings, labels)
        old, used = embed(rows["GeM 3"]), labels[_sample(labels)]
        half = settings.size // 2
        changed = {
            "pooling": embed(rows["average"]),
            "shrinkage": embed(rows["GeM 3"], shrinkage=0.3),
            f"{settings.size} to {half} numbers": old[:, :half],
            "width 1.0 to 0.35": embed(few["GeM 3"]),
        }
        found = {
            name: certified_map(old, keras.utils.normalize(new), used)[1]
            for name, new in changed.items()
        }
        title = f"{path.stem}: {len(labels)} images"
        yield Table(HEADINGS, [_row(*one) for one in found.items()], 1, title)


def _sample(labels):
    """Positions of the images that fit no whitening."""
    fitted = whitening.fold_sides(labels, folds=3, fold=0)["test"]
    return np.setdiff1d(np.arange(len(labels)), fitted)


def _embedded(settings, labels, features, shrinkage=0.8):
    """The sample's embeddings, whitened by the other classes."""
    sample = _sample(labels)
    fitted = np.setdiff1d(np.arange(len(labels)), sample)
    layer = gsp.layers.Whitening(settings.size, shrinkage=shrinkage)
    layer.adapt(features[fitted], labels[fitted])
    return keras.ops.convert_to_numpy(layer(features[sample]))


def _row(name, facts):
    cost = [facts["cost"][key] for key in ("difference", "low", "high")]
    scores = [f"{100 * facts[key]:.1f}" for key in HEADINGS[1:4]]
    return [name, *scores, whitening.gain_text(cost), facts["map"]]


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
