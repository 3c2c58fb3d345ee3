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
from typing import Any

import keras
import numpy as np
from tqdm import tqdm

import keras_gsp as gsp
from training.research.experiments import whitening
from training.research.report import run_measurement

BEST, WHITENED, tables = whitening.BEST, whitening.WHITENED, whitening.tables

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
    folds: int = 2
    """Folds over the classes, at least 2."""
    shrinkages: tuple[float, ...] = (0.1, 0.3, 0.8)
    """Shrinkages of learned whitening."""
    classes: int | None = None
    """Most classes of a data set, drawn at random; all by default."""
    poolings: tuple[str, ...] = tuple(POOLINGS)
    """Poolings of the heads."""
    rates: tuple[float, ...] = (1e-3, 1e-4)
    """Learning rates, chosen on validation classes."""
    steps: int = 200
    """Training steps."""

    SMALL = {
        **{"pixels": 32, "size": 4, "rates": (1e-3,), "steps": 2},
        "poolings": ("average", "GSP + GeM"),
    }


class Heads:
    """Heads of one pooling, one after the other: compiled once."""

    def __init__(self, settings: Any, pooling: Any, maps: np.ndarray) -> None:
        self.settings, self.maps = settings, maps
        if not hasattr(pooling, "adapt"):
            # Nothing is learned before the projection: pooled once.
            made = self._encoder(pooling, None, normalization=None)
            found = made.predict(maps, batch_size=128, verbose=0)
            self.maps = found[:, None, None]
        keras.utils.set_random_seed(0)
        self.encoder = self._encoder(pooling, settings.size)
        self.learner = gsp.models.MetricLearner(self.encoder, seed=0)
        optimizer = keras.optimizers.AdamW()
        optimizer.build(self.learner.trainable_variables)
        self.learner.compile(optimizer, loss=gsp.losses.MultiSimilarityLoss())
        self.first = self.learner.get_weights()
        self.state = [np.array(one) for one in optimizer.variables]

    def trained(
        self, sides: dict, labels: np.ndarray, start: str, shrinkage: float
    ) -> dict[str, Any]:
        """Test scores at the rate and weights that validate best."""

        def scores(side):
            some = sides[side]
            rows = self.encoder.predict(self.maps[some], 128, verbose=0)
            return gsp.metrics.retrieval_scores(
                rows, labels[some], per_query=True
            )

        best: Any = (-1.0,)
        chosen = sides["train"]
        for rate in self.settings.rates:
            # As before the first step of the first head.
            self.learner.set_weights(self.first)
            optimizer = self.learner.optimizer
            for one, value in zip(optimizer.variables, self.state, strict=True):
                one.assign(value)
            optimizer.learning_rate = rate
            if start != "random":
                own = shrinkage if start == "whitening" else 1.0
                every = self.maps[chosen], labels[chosen]
                gsp.models.initialize_projection(
                    self.encoder, every, shrinkage=own
                )
            untrained = scores("test")["map_at_r"]
            sampler = gsp.data.ClassBalancedSampler(
                labels[chosen],
                classes_per_batch=min(8, len(set(labels[chosen]))),
                samples_per_class=4,
            )
            steps = self.settings.steps
            for step in range(steps + 1):
                if step in (0, steps // 2, steps):
                    found = scores("validation")["map_at_r"]
                    if found > best[0]:
                        weights = self.encoder.get_weights()
                        best = found, weights, f"{rate:g}"
                some = chosen[sampler[step]]
                self.learner.train_on_batch(self.maps[some], labels[some])
        self.encoder.set_weights(best[1])
        return scores("test") | {"chosen": best[2], "untrained": untrained}

    def _encoder(self, pooling, size, **options):
        inputs = keras.Input(self.maps.shape[1:])
        return gsp.models.build_encoder(
            keras.Model(inputs, inputs),
            embedding_size=size,
            pooling=pooling,
            **options,
        )


def measure(settings: Settings) -> dict:
    """Scores and paired gains of each data set."""
    sets = {}
    for path in settings.data_dirs:
        images = gsp.data.image_folder(str(path))
        order = np.random.default_rng(0).permutation(images.num_classes)
        is_in = np.isin(images.labels, order[: settings.classes])
        images = images.subset(np.flatnonzero(is_in))
        labels = np.asarray(images.labels)
        maps = whitening.feature_maps(settings, images.paths)
        rows = whitening.pooled_rows(maps)
        folds = [
            whitening.fold_rows(settings, rows, labels, fold)
            for fold in range(settings.folds)
        ]
        classes = [one.pop("classes") for one in folds]
        names = [BEST, WHITENED]
        for pooling in tqdm(settings.poolings, desc=path.stem):
            heads = Heads(settings, POOLINGS[pooling](), maps)
            for start in STARTS:
                names.append(f"{pooling} from {start}")
                for fold, found in enumerate(folds):
                    found[names[-1]] = heads.trained(
                        whitening.fold_sides(labels, settings.folds, fold),
                        labels,
                        start,
                        found[WHITENED]["chosen"],
                    )
        title = (
            f"{path.stem}: {images.num_classes} classes, {len(labels)} images"
        )
        sets[title] = [
            whitening.summary(name, folds, classes, WHITENED) for name in names
        ]
    return {"sets": sets}


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
