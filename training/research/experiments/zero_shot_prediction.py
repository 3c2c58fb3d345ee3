r"""Do regularized prototypes transfer to classes never seen?

    python -m training.research.experiments.zero_shot_prediction
    python -m training.research.experiments.zero_shot_prediction --data-dir cifar10.zip

Generalized sum pooling with 8 prototypes and ProxyNCA++, alone, with the
zero-shot (ZSR) and with the cross-batch regularizer (XML), on `glyphs` by
default. Histograms and embeddings of unseen classes, or of a folder's unseen
images of the training classes (as in the papers), are compared under 1,000
random splits of these classes into two halves:

- class level: a ridge regression from mean histograms to mean embeddings of
  classes is fitted to one half and predicts the other. Measures: distance of
  predicted to true class embeddings, beside that of the mean embedding of the
  first half; their cosine; and how often the nearest class embedding of the half is the true one, by
  distance and by cosine (GSP, 2.3).
- image level, for the first `--retrieval-splits`: MAP@R of the embeddings;
  `MAP_c` and `MAP_x`, of embeddings expressed with prototypes that were fitted
  to all these classes, and to the other half (XML, (2.10)). Embeddings are
  normalized here, XML's loss takes averages that are not.

The papers train on CIFAR-10's own pictures.
Share is the regularizer's share of the gradient.
GSP, section 5.1 and supplement 2.3; thesis, section 5.3.3; XML, section 3.2.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

import keras_gsp as gsp
from keras_gsp.data import ImageSet
from training.datasets import glyphs
from training.datasets.collage import load_pictures
from training.recipes.batches import training_batches
from training.recipes.learner import build_learner, start_from_data
from training.recipes.recipe import named
from training.research.report import (
    ExperimentSettings,
    Table,
    over_runs,
    run_measurement,
    spread,
)

NUM_PROTOTYPES = 8
RIDGE = 0.05  # of the losses' regressions, and of those fitted afterwards
CIFAR_WEIGHT = 0.5  # of the zero-shot regularizer on CIFAR (GSP, supplement)
SIDE = 32  # of a picture of an image folder, in pixels
# "GSP" has a regularizer of weight 0: the encoder then returns histograms.
REGULARIZERS: dict[str, dict[str, Any]] = {
    "GSP": {"regularizer": "zsr", "regularizer_arguments": {"weight": 0.0}},
    "GSP+ZSR": {"regularizer": "zsr"},
    "GSP+XML": {"regularizer": "xml"},
}
SMALL_GLYPHS = {
    **{"train_classes": 4, "train_samples": 8, "validation_classes": 4},
    **{"test_classes": 6, "test_samples": 4},
}
MEASURES = {
    "distance": "distance",
    "distance_of_mean": "distance, mean of half",
    "cosine": "cosine",
    "nearest": "nearest class",
    "nearest_cosine": "nearest class, by cosine",
    "map": "MAP@R",
    "map_c": "MAP_c",
    "map_x": "MAP_x",
    "share": "share",
}


@dataclass(frozen=True, kw_only=True)
class Settings(ExperimentSettings):
    """Data, training and splits."""

    data_dir: Path | None = None
    """An image folder, `train/CLASS` and `test/CLASS`, of which images of the
    training classes are examined. By default unseen classes of `glyphs` are."""
    steps: int = 600
    batch_size: int = 64

    class_splits: int = 1000
    """Random splits of the classes, class level."""
    retrieval_splits: int = 10
    """Of these, how many are scored by retrieval as well."""

    SMALL = {
        **{"seeds": (0,), "steps": 2, "batch_size": 8},
        **{"class_splits": 10, "retrieval_splits": 1},
    }


def known_and_examined(settings: Settings) -> tuple[ImageSet, ImageSet]:
    """Images for training, and those that are examined afterwards."""
    if settings.data_dir is None:
        data = glyphs.load(**(SMALL_GLYPHS if settings.smoke else {}))
        return data.train, data.test
    train, test = (
        load_pictures(settings.data_dir, SIDE, side=side)
        for side in ("train", "test")
    )
    return train, test


def train(
    settings: Settings, method: str, images: ImageSet, seed: int
) -> tuple[Any, dict[str, float]]:
    """Trains one method of `REGULARIZERS`.

    Returns the encoder, and the regularizer's mean share of the gradient as
    `share`, nothing without one.
    """
    settings_of = REGULARIZERS[method]
    if method == "GSP+ZSR" and settings.data_dir is not None:
        settings_of = settings_of | {
            "regularizer_arguments": {"weight": CIFAR_WEIGHT}
        }
    classes = int(np.clip(images.num_classes, 1, settings.batch_size // 4))
    recipe = (
        named("glyphs", pooling="gsp")
        .with_(
            classes_per_batch=classes,
            samples_per_class=max(2, settings.batch_size // classes),
            num_prototypes=NUM_PROTOTYPES,
            inverse_temperature=10.0,
            transport_ratio=0.2,
            steps=settings.steps,
            steps_per_evaluation=settings.steps,
            seed=seed,
            loss="proxy-nca",
            **settings_of,
        )
        .with_(regularizer_arguments={"ridge": RIDGE})
    )
    shape = images.images.shape[1:]
    learner = build_learner(
        recipe, num_classes=images.num_classes, image_shape=shape
    )
    batches = training_batches(recipe, images)
    start_from_data(recipe, learner, images)
    history = learner.fit(
        batches, steps_per_epoch=recipe.steps, shuffle=False, verbose=0
    ).history
    shares = method != "GSP" and history.get("regularizer_share")
    return learner.encoder, {"share": shares[0]} if shares else {}


def class_means(values: Any, labels: Any) -> Any:
    """Mean of the rows of each class, (num_classes, size)."""
    classes = range(labels.max() + 1)
    return np.stack([values[labels == one].mean(axis=0) for one in classes])


def fitted(histograms: Any, targets: Any, ridge: float = RIDGE) -> Any:
    """The regression from histograms to targets, without a constant."""
    from sklearn.linear_model import Ridge

    return Ridge(ridge, fit_intercept=False).fit(histograms, targets)


def predict_classes(histograms: Any, embeddings: Any, splits: Any) -> dict:
    """Predicts the class embeddings of each half from the other half's."""
    from scipy.spatial.distance import cdist

    runs = []
    for known in np.concatenate([splits, ~splits]):
        truth = embeddings[~known]
        mean = embeddings[known].mean(axis=0, keepdims=True)
        model = fitted(histograms[known], embeddings[known])
        guess = model.predict(histograms[~known])
        distances, cosines = cdist(guess, truth), cdist(guess, truth, "cosine")
        same = np.arange(len(truth))
        runs.append(
            {
                "distance": distances.diagonal().mean(),
                "distance_of_mean": cdist(mean, truth).mean(),
                "cosine": 1.0 - cosines.diagonal().mean(),
                "nearest": np.mean(distances.argmin(axis=1) == same),
                "nearest_cosine": np.mean(cosines.argmin(axis=1) == same),
            }
        )
    return {name: np.mean([run[name] for run in runs]) for name in runs[0]}


def retrieve_halves(
    histograms: Any,
    embeddings: Any,
    labels: Any,
    splits: Any,
    ridge: float = RIDGE,
) -> dict:
    """MAP@R, `MAP_c` and `MAP_x`, means over splits and halves."""
    scores_of: dict[str, list] = {"map": [], "map_c": [], "map_x": []}
    known = fitted(histograms, embeddings, ridge).predict(histograms)
    for first in splits:
        is_first = first[labels]
        for side in (is_first, ~is_first):
            other = fitted(histograms[~side], embeddings[~side], ridge)
            for name, vectors in (
                ("map", embeddings[side]),
                ("map_c", known[side]),
                ("map_x", other.predict(histograms[side])),
            ):
                scores = gsp.metrics.retrieval_scores(
                    vectors.astype("float32"), labels[side], recall_at=()
                )
                scores_of[name].append(scores["map_at_r"])
    return {name: np.mean(values) for name, values in scores_of.items()}


def measure(settings: Settings) -> Iterator[Table]:
    """Trains every method for every seed, scores all splits: a row each."""
    known, unseen = known_and_examined(settings)
    # Random halves of the classes, (class_splits, num_classes).
    first = np.arange(unseen.num_classes) < unseen.num_classes // 2
    rows = np.tile(first, (settings.class_splits, 1))
    splits = np.random.default_rng(0).permuted(rows, axis=1)
    lines = []
    for method in REGULARIZERS:
        runs = []
        for seed in tqdm(settings.seeds, desc=method):
            encoder, share = train(settings, method, known, seed)
            outputs = encoder.predict(unseen.images, verbose=0)
            histograms, embeddings = outputs["histogram"], outputs["embedding"]
            means = class_means(histograms, unseen.labels)
            of_classes = class_means(embeddings, unseen.labels)
            images = histograms, embeddings, unseen.labels
            few = splits[: settings.retrieval_splits]
            predicted = predict_classes(means, of_classes, splits)
            runs.append(predicted | retrieve_halves(*images, few) | share)
        scores = over_runs(runs)
        cells = [
            spread(scores[name], digits=3) if name in scores else "-"
            for name in MEASURES
        ]
        lines.append([method, *cells])
    yield Table(["", *MEASURES.values()], lines)


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
