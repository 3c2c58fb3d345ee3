"""Where should a head on a frozen network start?

    python -m training.research.experiments.head_starts --data-dirs birds.zip emoji.zip --backbone-weights FILE

MobileNetV2, frozen; the features of each image are computed once, without crops.
Folds over the classes as in `whitening`, whose best pooling of the raw features and
learned whitening at its chosen shrinkage are the first rows. Heads of as many numbers
start at random, from PCA of their features, or from learned whitening at that
shrinkage (`gsp.models.initialize_projection`), and are trained with multi-similarity on
batches of 8 x 4 images. GSP + GeM has a power of 3. Learning rate and weights, those
before the first step included, are the best on validation classes. MAP@R and P@1 in %
on the test classes, means over folds; `untrained` is MAP@R before the first step.
Gains are paired, over learned whitening, with 95 % intervals over classes and folds.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import keras
import numpy as np
from tqdm import tqdm

import keras_gsp as gsp
from training.research.experiments import whitening
from training.research.experiments.heads import SIDES, best_head, head, scores
from training.research.report import run_measurement

WHITENED, tables = whitening.WHITENED, whitening.tables

STARTS = "random", "PCA", "whitening"
POOLINGS: dict[str, Callable[[], Any]] = {
    "average": keras.layers.GlobalAveragePooling2D,
    "GeM": gsp.layers.GeneralizedMeanPooling,
    "GSP": gsp.layers.GeneralizedSumPooling,
    "GSP + GeM": partial(gsp.layers.GeneralizedSumPooling, power=3.0),
}


@dataclass(frozen=True, kw_only=True)
class Settings(whitening.Settings):
    """Data, backbone and heads."""

    pixels: int = 160
    """Height and width of an image."""
    shrinkages: tuple[float, ...] = (0.1, 0.3, 0.8)
    """Shrinkages of learned whitening."""
    poolings: tuple[str, ...] = tuple(POOLINGS)
    """Poolings of the heads."""
    rates: tuple[float, ...] = (1e-3, 1e-4)
    """Learning rates, chosen on validation classes."""
    steps: int = 200
    """Training steps."""

    SMALL = {
        **{"pixels": 32, "folds": 3, "size": 4, "rates": (1e-3,), "steps": 2},
        "poolings": ("average", "GSP + GeM"),
    }


def head_scores(
    settings: Settings,
    pooling: str,
    start: str,
    shrinkage: float,
    maps: np.ndarray,
    labels: np.ndarray,
    positions: dict[str, np.ndarray],
) -> dict[str, Any]:
    """Test scores of a head of a fold."""
    layer = POOLINGS[pooling]()
    if not hasattr(layer, "adapt"):
        # Nothing is learned before the projection: pooled once.
        pool = keras.Sequential([keras.Input(maps.shape[1:]), layer])
        maps = pool.predict(maps, batch_size=128, verbose=0)[:, None, None]
    keras.utils.set_random_seed(0)
    encoder = head(maps.shape[1:], layer, settings.size)
    images = {side: maps[positions[side]] for side in SIDES}
    classes = {side: labels[positions[side]] for side in SIDES}
    if start != "random":
        gsp.models.initialize_projection(
            encoder,
            (images["train"], classes["train"]),
            shrinkage=shrinkage if start == "whitening" else 1.0,
        )

    def tested():
        rows = encoder.predict(images["test"], 128, verbose=0)
        return scores(rows, classes["test"])

    untrained = tested()["map_at_r"]
    rate = best_head(
        encoder,
        images,
        classes,
        gsp.losses.MultiSimilarityLoss(),
        rates=settings.rates,
        steps=settings.steps,
    )
    return tested() | {"chosen": rate, "untrained": untrained}


def measure(settings: Settings) -> dict:
    """Scores and paired gains of each data set."""
    sets = {}
    for path in settings.data_dirs:
        images = whitening.read_images(settings, path)
        labels = np.asarray(images.labels)
        maps = whitening.feature_maps(settings, images.paths)
        rows = whitening.pooled_rows(maps)
        folds = []
        for fold in tqdm(range(settings.folds), desc=path.stem):
            sides = whitening.fold_sides(labels, settings.folds, fold)
            scored = whitening.fold_rows(
                *(rows, labels, sides, settings.size, settings.shrinkages),
                forms=(WHITENED,),
            )
            del scored["average"]
            shrinkage = scored[WHITENED]["chosen"]
            for pooling, start in product(settings.poolings, STARTS):
                scored[f"{pooling} from {start}"] = head_scores(
                    *(settings, pooling, start, shrinkage, maps, labels, sides)
                )
            folds.append(scored)
        title = whitening.title_of(path, labels)
        sets[title] = whitening.summaries(folds, (WHITENED,))
    return {"sets": sets}


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
