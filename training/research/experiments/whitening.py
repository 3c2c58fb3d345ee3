"""What do a backbone's features score before any training?

    python -m training.research.experiments.whitening --data-dirs birds.zip emoji.zip --backbone-weights FILE

MobileNetV2, frozen. Folds over the classes: a share of them tests, a quarter of the
others validates, the rest is what closed forms are fitted to. Rows: features
averaged; `best pooling`, the best of average, GeM (powers 3 and 5) and maximum on
validation classes; PCA of its normalized features; learned whitening with class
labels (`gsp.layers.Whitening`) at several shrinkages, and at the one that is best on
validation classes. MAP@R and P@1 in % on the test classes, means over folds. Gains
are paired, over the best pooling, with 95 % intervals over classes and folds.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
from tqdm import tqdm

import keras_gsp as gsp
from training.research.report import (
    CommandSettings,
    Table,
    run_measurement,
)
from training.runs.raw_baseline import pooled

BEST = "best pooling"
SIDES = "train", "validation", "test"


@dataclass(frozen=True, kw_only=True)
class Settings(CommandSettings):
    """Data, backbone and closed forms."""

    data_dirs: tuple[Path, ...] = ()
    """Folders or archives of images."""
    backbone_weights: Path | None = None
    """Weights of MobileNetV2; random by default."""
    width: float = 1.0
    """Width of MobileNetV2."""
    pixels: int = 224
    """Height and width of an image."""
    folds: int = 4
    """Folds over the classes, at least 2."""
    size: int = 128
    """Size of the embeddings of the closed forms."""
    shrinkages: tuple[float, ...] = (0.1, 0.3, 0.5, 0.8, 0.9, 0.95)
    """Shrinkages of learned whitening."""

    SMALL = {"pixels": 32, "folds": 2, "size": 4}


def features(settings: Settings, paths: Any) -> dict[str, np.ndarray]:
    """Normalized features of every image, by pooling."""
    side = settings.pixels
    network = keras.applications.MobileNetV2(
        (side, side, 3),
        alpha=settings.width,
        include_top=False,
        weights=None,
    )
    if settings.backbone_weights is not None:
        network.load_weights(settings.backbone_weights)
    batches = gsp.data.evaluation_batches(
        paths, preprocessing=gsp.data.Preprocessing(side, side)
    )
    found = [
        pooled(network.predict_on_batch(np.asarray(batch) / 127.5 - 1.0))
        for batch in tqdm(batches, desc="images")
    ]
    return {
        name: np.concatenate([one[name] for one in found]) for name in found[0]
    }


def fold_rows(
    settings: Settings, rows: dict, labels: np.ndarray, fold: int
) -> dict[str, dict]:
    """Scores of each method on the test classes of a fold."""
    order = np.random.default_rng(0).permutation(labels.max() + 1)
    tests = np.array_split(order, settings.folds)[fold]
    others = np.random.default_rng(fold).permutation(np.setdiff1d(order, tests))
    count = max(2, len(others) // 4)
    classes = others[count:], others[:count], tests
    sides = {
        side: np.flatnonzero(np.isin(labels, of))
        for side, of in zip(SIDES, classes, strict=True)
    }

    def score(embeddings, side="test"):
        chosen = sides[side]
        return gsp.metrics.retrieval_scores(
            embeddings[chosen], labels[chosen], per_query=True
        )

    def validated(candidates):
        return max(
            candidates,
            key=lambda name: score(candidates[name], "validation")["map_at_r"],
        )

    best = validated(rows)
    fitted = sides["train"]
    whitened = {}
    for shrinkage in (*settings.shrinkages, 1.0):
        layer = gsp.layers.Whitening(settings.size, shrinkage=shrinkage)
        layer.adapt(rows[best][fitted], labels[fitted])
        whitened[shrinkage] = keras.ops.convert_to_numpy(layer(rows[best]))
    principal = whitened.pop(1.0)
    chosen = validated(whitened)
    embedded = {"average": rows["average"], BEST: rows[best], "PCA": principal}
    embedded |= {f"whitened, {s:g}": x for s, x in whitened.items()}
    embedded["whitened, chosen"] = whitened[chosen]
    found = {name: score(one) for name, one in embedded.items()}
    found[BEST]["chosen"], found["whitened, chosen"]["chosen"] = best, chosen
    return found | {"classes": labels[sides["test"]]}


def measure(settings: Settings) -> dict:
    """Scores and paired gains of each data set."""
    sets = {}
    for path in settings.data_dirs:
        images = gsp.data.image_folder(str(path))
        rows = features(settings, images.paths)
        labels = np.asarray(images.labels)
        folds = [
            fold_rows(settings, rows, labels, fold)
            for fold in range(settings.folds)
        ]
        classes = [one.pop("classes") for one in folds]
        title = (
            f"{path.stem}: {images.num_classes} classes, {len(labels)} images"
        )
        sets[title] = [_row(name, folds, classes) for name in folds[0]]
    return {"sets": sets}


def _row(name, folds, classes):
    row = {"name": name, "chosen": [f[name].get("chosen", "") for f in folds]}
    for key in ("map_at_r", "precision_at_1"):
        row[key] = float(np.mean([one[name][key] for one in folds]))
    if name != BEST:
        own, base = (
            [one[which]["per_query"]["map_at_r"] for one in folds]
            for which in (name, BEST)
        )
        found = gsp.metrics.paired_difference(own, base, classes)
        row["gain"] = [found[key] for key in ("difference", "low", "high")]
    return row


def tables(results: dict) -> list[Table]:
    """One table a data set."""
    return [
        Table(
            ["", "chosen", "MAP@R", "P@1", "gain"],
            [
                [
                    row["name"],
                    ", ".join(dict.fromkeys(map(str, row["chosen"]))),
                    f"{100 * row['map_at_r']:.1f}",
                    f"{100 * row['precision_at_1']:.1f}",
                    _gain(row.get("gain")),
                ]
                for row in rows
            ],
            2,
            title,
        )
        for title, rows in results["sets"].items()
    ]


def _gain(gain):
    if gain is None:
        return ""
    middle, low, high = (f"{100 * one:+.1f}" for one in gain)
    return f"{middle} [{low}, {high}]"


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
