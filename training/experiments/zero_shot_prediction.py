"""Do regularised prototypes carry over to classes never seen?

    python -m training.experiments.zero_shot_prediction
    python -m training.experiments.zero_shot_prediction --data-dir cifar10.zip

Generalized sum pooling with 8 prototypes, alone, with the zero-shot (ZSR) and
with the cross-batch regulariser (XML), on collages; `glyphs` by default. What
is looked at are histograms and embeddings of unseen classes, under 1,000
random splits of these classes into two halves:

- class level: a ridge regression from the mean histogram of a class to its
  mean embedding is fitted to one half and predicts the other. Scored are the
  distance between predicted and true class embeddings, beside the distance of
  a guess that knows no histogram, the mean embedding of the first half; their
  cosine; and their cosine after that mean is subtracted from both, which is
  0 for what all classes have in common.
- image level, for the first splits: `MAP_c`, MAP@R of the embeddings inside a
  half, and `MAP_x`, the same with each embedding expressed by the prototypes
  that were fitted to the other half (XML, (2.10)).

Thesis, section 5.3.3; XML, section 3.2. The thesis trains on CIFAR collages.
"""

from dataclasses import dataclass, replace

import numpy as np
import tyro
from tqdm import tqdm

import keras_gsp as gsp
from training.experiments.distracted import (
    DistractedSettings,
    load_splits,
    short_recipe,
)
from training.experiments.report import run_experiment
from training.experiments.short_training import encoded, trained_encoder
from training.experiments.zero_shot_prediction_picture import MEASURES, draw
from training.recipes.glyphs import GSP
from training.results.markdown import markdown_table, mean_and_deviation, spread

# Without regulariser the histogram is still wanted: weight 0 leaves it out.
REGULARIZERS = {
    "GSP": {"regularizer": "zsr", "regularizer_weight": 0.0},
    "GSP+ZSR": {"regularizer": "zsr"},
    "GSP+XML": {"regularizer": "xml"},
}
SHOWN_CLASSES = 16


@dataclass(frozen=True, kw_only=True)
class Settings(DistractedSettings):
    """Data, training and splits."""

    num_prototypes: int = 8
    ridge: float = 0.05
    """Of the regressions, here and in the losses."""
    class_splits: int = 1000
    """Random splits of the unseen classes, class level."""
    retrieval_splits: int = 10
    """Of these, how many are scored by retrieval as well."""

    def small(self):
        """A handful of steps and splits."""
        return replace(super().small(), class_splits=10, retrieval_splits=1)


def ridge_map(histograms, targets, ridge: float):
    """The regression from histograms to targets, (num_prototypes, size)."""
    gram = histograms.T @ histograms + ridge * np.eye(histograms.shape[1])
    return np.linalg.solve(gram, histograms.T @ targets)


def class_means(values, labels):
    """Mean of the rows of each class, (num_classes, size)."""
    counts = np.bincount(labels)[:, None]
    total = np.zeros((len(counts), values.shape[1]))
    np.add.at(total, labels, values)
    return total / counts


def class_splits(num_classes: int, count: int, seed: int):
    """Random halves of the classes, boolean (count, num_classes)."""
    first = np.arange(num_classes) < num_classes // 2
    rows = np.tile(first, (count, 1))
    return np.random.default_rng(seed).permuted(rows, axis=1)


def predict_classes(histograms, embeddings, splits, ridge: float) -> dict:
    """Predicts the class embeddings of each half from the other half's.

    Returns:
        Means over splits and classes.
    """
    found = {name: [] for name in list(MEASURES)[:4]}
    for first in splits:
        for known in (first, ~first):
            truth = embeddings[~known]
            mean = embeddings[known].mean(axis=0)
            fitted = ridge_map(histograms[known], embeddings[known], ridge)
            guess = histograms[~known] @ fitted
            found["distance"].append(_distance(guess, truth).mean())
            found["distance_of_mean"].append(_distance(mean, truth).mean())
            found["cosine"].append(_cosine(guess, truth).mean())
            centred = _cosine(guess - mean, truth - mean).mean()
            found["centred_cosine"].append(centred)
    return {name: np.mean(values) for name, values in found.items()}


def _distance(one, other):
    return np.linalg.norm(one - other, axis=-1)


def _cosine(one, other):
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return np.sum(one * other, axis=1) / np.maximum(lengths, 1e-12)


def retrieve_halves(histograms, embeddings, labels, splits, ridge) -> dict:
    """`MAP_c` and `MAP_x`, means over splits and halves."""
    found = {"map_c": [], "map_x": []}
    for first in splits:
        is_first = first[labels]
        for side in (is_first, ~is_first):
            fitted = ridge_map(histograms[~side], embeddings[~side], ridge)
            expressed = histograms[side] @ fitted
            for name, vectors in (
                ("map_c", embeddings[side]),
                ("map_x", expressed),
            ):
                scores = gsp.metrics.retrieval_scores(
                    vectors.astype("float32"), labels[side], recall_at=()
                )
                found[name].append(scores["map_at_r"])
    return {name: np.mean(values) for name, values in found.items()}


def measure(settings: Settings) -> dict:
    """Trains every method for every seed, scores all splits."""
    data = load_splits(settings)
    unseen = data.test
    splits = class_splits(unseen.num_classes, settings.class_splits, seed=0)
    scores, shown = {}, {}
    for method in REGULARIZERS:
        runs = []
        for seed in tqdm(settings.seeds, desc=method):
            recipe = short_recipe(
                GSP,
                settings,
                data.train,
                seed,
                ridge=settings.ridge,
                **REGULARIZERS[method],
            )
            found = encoded(trained_encoder(recipe, data.train), unseen)
            histograms, embeddings = found["histogram"], found["embedding"]
            means = class_means(histograms, unseen.labels)
            runs.append(
                predict_classes(
                    means,
                    class_means(embeddings, unseen.labels),
                    splits,
                    settings.ridge,
                )
                | retrieve_halves(
                    histograms,
                    embeddings,
                    unseen.labels,
                    splits[: settings.retrieval_splits],
                    settings.ridge,
                )
            )
            shown.setdefault(method, means[:SHOWN_CLASSES])
        scores[method] = {
            name: mean_and_deviation([run[name] for run in runs])
            for name in MEASURES
        }
    return {"scores": scores, "first_seed_histograms": shown}


def table(results: dict) -> str:
    """One row a method."""
    rows = [
        [method, *(spread(found[name], digits=3) for name in MEASURES)]
        for method, found in results["scores"].items()
    ]
    return markdown_table(["", *MEASURES.values()], rows)


def main(arguments=None) -> None:
    """Runs the experiment."""
    settings = tyro.cli(Settings, description=__doc__, args=arguments)
    run_experiment("zero_shot_prediction", settings, measure, draw, table)


if __name__ == "__main__":
    main()
