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
  first half; their cosine; the same after that mean is subtracted from both;
  and how often the nearest class embedding of the half is the true one, by
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

import keras_gsp as gsp
from training.pictures.palette import picture
from training.research.experiments.few_prototypes import (
    COLORS,
    REGULARIZERS,
    RIDGE,
    FewPrototypesSettings,
    class_means,
    encoded,
    known_and_examined,
    short_names,
    train,
)
from training.research.report import (
    Table,
    over_runs,
    run_measurement,
    spread,
)

MEASURES = {
    "distance": "distance",
    "distance_of_mean": "distance, mean of half",
    "cosine": "cosine",
    "centered_cosine": "cosine, centered",
    "nearest": "nearest class",
    "nearest_cosine": "nearest class, by cosine",
    "map": "MAP@R",
    "map_c": "MAP_c",
    "map_x": "MAP_x",
    "share": "share",
}
SHOWN_CLASSES = 16


@dataclass(frozen=True, kw_only=True)
class Settings(FewPrototypesSettings):
    """Data, training and splits."""

    class_splits: int = 1000
    """Random splits of the classes, class level."""
    retrieval_splits: int = 10
    """Of these, how many are scored by retrieval as well."""

    SMALL = {
        **FewPrototypesSettings.SMALL,
        "class_splits": 10,
        "retrieval_splits": 1,
    }


def ridge_map(histograms: Any, targets: Any, ridge: float) -> Any:
    """The regression from histograms to targets, (num_prototypes, size)."""
    gram = histograms.T @ histograms + ridge * np.eye(histograms.shape[1])
    return np.linalg.solve(gram, histograms.T @ targets)


def class_splits(num_classes: int, count: int, seed: int) -> Any:
    """Random halves of the classes, boolean (count, num_classes)."""
    first = np.arange(num_classes) < num_classes // 2
    rows = np.tile(first, (count, 1))
    return np.random.default_rng(seed).permuted(rows, axis=1)


def predict_classes(
    histograms: Any, embeddings: Any, splits: Any, ridge: float
) -> dict:
    """Predicts the class embeddings of each half from the other half's."""
    runs = []
    for known in np.concatenate([splits, ~splits]):
        truth = embeddings[~known]
        mean = embeddings[known].mean(axis=0)
        fitted = ridge_map(histograms[known], embeddings[known], ridge)
        guess = histograms[~known] @ fitted
        runs.append(
            {
                "distance": _distance(guess, truth).mean(),
                "distance_of_mean": _distance(mean, truth).mean(),
                "cosine": _cosine(guess, truth).mean(),
                "centered_cosine": _cosine(guess - mean, truth - mean).mean(),
                "nearest": _hits(-_distance(guess[:, None], truth)),
                "nearest_cosine": _hits(_cosine(guess[:, None], truth)),
            }
        )
    return {name: np.mean([run[name] for run in runs]) for name in runs[0]}


def _distance(one, other):
    return np.linalg.norm(one - other, axis=-1)


def _cosine(one, other):
    lengths = np.linalg.norm(one, axis=-1) * np.linalg.norm(other, axis=-1)
    return np.sum(one * other, axis=-1) / np.maximum(lengths, 1e-12)


def _hits(similarities):
    """How often the largest entry of a row is on the diagonal."""
    return np.mean(similarities.argmax(axis=1) == np.arange(len(similarities)))


def retrieve_halves(
    histograms: Any,
    embeddings: Any,
    labels: Any,
    splits: Any,
    ridge: float,
) -> dict:
    """MAP@R, `MAP_c` and `MAP_x`, means over splits and halves."""
    found: dict[str, list] = {"map": [], "map_c": [], "map_x": []}
    known = histograms @ ridge_map(histograms, embeddings, ridge)
    for first in splits:
        is_first = first[labels]
        for side in (is_first, ~is_first):
            fitted = ridge_map(histograms[~side], embeddings[~side], ridge)
            expressed = histograms[side] @ fitted
            for name, vectors in (
                ("map", embeddings[side]),
                ("map_c", known[side]),
                ("map_x", expressed),
            ):
                scores = gsp.metrics.retrieval_scores(
                    vectors.astype("float32"), labels[side], recall_at=()
                )
                found[name].append(scores["map_at_r"])
    return {name: np.mean(values) for name, values in found.items()}


def measure(settings: Settings) -> dict:
    """Trains every method for every seed, scores all splits."""
    known, unseen = known_and_examined(settings)
    splits = class_splits(unseen.num_classes, settings.class_splits, seed=0)
    scores: dict[str, Any] = {}
    shown: dict[str, Any] = {}
    for method in REGULARIZERS:
        runs = []
        for seed in tqdm(settings.seeds, desc=method):
            encoder, share = train(settings, method, known, seed)
            found = encoded(encoder, unseen)
            histograms, embeddings = found["histogram"], found["embedding"]
            means = class_means(histograms, unseen.labels)
            of_classes = class_means(embeddings, unseen.labels)
            images = histograms, embeddings, unseen.labels
            few = splits[: settings.retrieval_splits]
            runs.append(
                predict_classes(means, of_classes, splits, RIDGE)
                | retrieve_halves(*images, few, RIDGE)
                | share
            )
            shown.setdefault(method, means[:SHOWN_CLASSES])
        scores[method] = over_runs(runs)
    return {
        "scores": scores,
        "drawn": (short_names(unseen)[:SHOWN_CLASSES], shown),
    }


def tables(results: dict) -> list[Table]:
    """One row a method."""
    rows = [
        [method]
        + [spread(found[n], digits=3) if n in found else "-" for n in MEASURES]
        for method, found in results["scores"].items()
    ]
    return [Table(["", *MEASURES.values()], rows)]


def draw(path: Path, results: dict) -> None:
    """Draws histograms of unseen classes, a panel for each method."""
    names, histograms = results["drawn"]
    largest = max(np.max(shown) for shown in histograms.values())
    with picture(path, 1, len(histograms), figsize=(9, 5.6)) as axes:
        panels = zip(axes[0], histograms.items(), strict=True)
        for axis, (method, shown) in panels:
            image = axis.imshow(
                shown, aspect="auto", cmap="viridis", vmin=0, vmax=largest
            )
            axis.set_title(method, color=COLORS[method])
            axis.set_xlabel("prototype")
            axis.set_yticks([])
        axes[0, 0].set_yticks(range(len(names)), names)
        axes[0, 0].set_ylabel("class looked at")
        axis.figure.colorbar(image, ax=list(axes[0]), label="mean histogram")


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
