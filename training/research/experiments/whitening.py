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

BEST, WHITENED = "best pooling", "whitened, chosen"
SCORES = {
    "untrained": "untrained",
    "map_at_r": "MAP@R",
    "precision_at_1": "P@1",
}
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


def feature_maps(settings: Settings, paths: Any) -> np.ndarray:
    """Feature maps of every image, float16."""
    side = settings.pixels
    network = keras.applications.MobileNetV2(
        (side, side, 3),
        alpha=settings.width,
        include_top=False,
        weights=None,
    )
    if settings.backbone_weights is not None:
        network.load_weights(settings.backbone_weights)
    batches = gsp.data.image_batches(
        paths, preprocessing=gsp.data.Preprocessing(side, side)
    )
    found = [
        network.predict_on_batch(np.asarray(batch) / 127.5 - 1.0)
        for batch in tqdm(batches, desc="images")
    ]
    return np.concatenate([maps.astype("float16") for maps in found])


def pooled_rows(maps: np.ndarray) -> dict[str, np.ndarray]:
    """Normalized features of every image, by pooling."""
    parts = [pooled(maps[i : i + 256]) for i in range(0, len(maps), 256)]
    return {k: np.concatenate([part[k] for part in parts]) for k in parts[0]}


def fold_sides(
    labels: np.ndarray, folds: int, fold: int
) -> dict[str, np.ndarray]:
    """Positions of the images of each of `SIDES`."""
    order = np.random.default_rng(0).permutation(labels.max() + 1)
    tests = np.array_split(order, folds)[fold]
    others = np.random.default_rng(fold).permutation(np.setdiff1d(order, tests))
    count = max(2, len(others) // 4)
    classes = others[count:], others[:count], tests
    return {
        side: np.flatnonzero(np.isin(labels, of))
        for side, of in zip(SIDES, classes, strict=True)
    }


def fold_rows(
    settings: Settings, rows: dict, labels: np.ndarray, fold: int
) -> dict[str, dict]:
    """Scores of each method on the test classes of a fold."""
    sides = fold_sides(labels, settings.folds, fold)

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
    embedded[WHITENED] = whitened[chosen]
    found = {name: score(one) for name, one in embedded.items()}
    found[BEST]["chosen"], found[WHITENED]["chosen"] = best, chosen
    return found | {"classes": labels[sides["test"]]}


def measure(settings: Settings) -> dict:
    """Scores and paired gains of each data set."""
    sets = {}
    for path in settings.data_dirs:
        images = gsp.data.image_folder(str(path))
        rows = pooled_rows(feature_maps(settings, images.paths))
        labels = np.asarray(images.labels)
        folds = [
            fold_rows(settings, rows, labels, fold)
            for fold in range(settings.folds)
        ]
        classes = [one.pop("classes") for one in folds]
        title = (
            f"{path.stem}: {images.num_classes} classes, {len(labels)} images"
        )
        sets[title] = [summary(name, folds, classes) for name in folds[0]]
    return {"sets": sets}


def summary(
    name: str, folds: list[dict], classes: list, over: str = BEST
) -> dict[str, Any]:
    """A row's means over folds, and its paired gain over another row."""
    row: dict[str, Any] = {"name": name}
    row["chosen"] = [f[name].get("chosen", "") for f in folds]
    for key in SCORES:
        if key in folds[0][name]:
            row[key] = float(np.mean([one[name][key] for one in folds]))
    if name != over:
        own, base = (
            [one[which]["per_query"]["map_at_r"] for one in folds]
            for which in (name, over)
        )
        found = gsp.metrics.paired_difference(own, base, classes)
        row["gain"] = [found[key] for key in ("difference", "low", "high")]
    return row


def tables(results: dict) -> list[Table]:
    """One table a data set."""
    found = []
    for title, rows in results["sets"].items():
        keys = [key for key in SCORES if any(key in row for row in rows)]
        table = [
            [
                row["name"],
                ", ".join(dict.fromkeys(map(str, row["chosen"]))),
                *(
                    f"{100 * row[key]:.1f}" if key in row else ""
                    for key in keys
                ),
                gain_text(row.get("gain")),
            ]
            for row in rows
        ]
        headings = ["", "chosen", *(SCORES[key] for key in keys), "gain"]
        found.append(Table(headings, table, 2, title))
    return found


def gain_text(gain: list[float] | None) -> str:
    """A difference and its interval, in points."""
    if gain is None:
        return ""
    middle, low, high = (f"{100 * one:+.1f}" for one in gain)
    return f"{middle} [{low}, {high}]"


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
