"""What do a backbone's features score before any training?

    python -m training.research.experiments.whitening --data-dirs birds.zip emoji.zip --backbone-weights FILE

MobileNetV2, frozen. Folds over the classes: a fold tests, a quarter of the other
classes validates, closed forms are fitted to the rest. Rows:
features averaged; `best pooling`, the best of average, GeM (powers 3 and 5) and
maximum; of its normalized features PCA (shrinkage 1) and PCA whitening; learned whitening
(`gsp.layers.Whitening` with class labels); linear discriminant analysis of
scikit-learn; and Koo-Fu (Suchanek et al., arXiv 2602.01127), which whitens the
covariance within classes and keeps the leading directions of that between classes.
Pooling and each form's shrinkage are the best on validation classes. MAP@R and P@1 in
% on the test classes. Gains are paired, over the best pooling and over learned
whitening, with 95 % intervals over classes, each of which is tested once.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

import keras_gsp as gsp
from training.datasets.own_images import merged_sides
from training.research.experiments.heads import SIDES, mobilenet, scores
from training.research.report import (
    CommandSettings,
    Table,
    gain_text,
    run_measurement,
)
from training.runs.raw_baseline import pooled

BEST, WHITENED = "best pooling", "learned whitening"
LDA, KOO_FU = "LDA, scikit-learn", "Koo-Fu"
FORMS = "PCA", "PCA whitening", WHITENED, LDA, KOO_FU
SCORES = {"untrained": "untrained", "map_at_r": "MAP@R"}
SCORES |= {"precision_at_1": "P@1"}


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
    images_per_class: int | None = None
    """Most images of a class; all by default."""
    classes: int | None = None
    """Most classes of a data set, drawn at random; all by default."""
    folds: int = 3
    """Folds over the classes, at least 2."""
    size: int = 128
    """Size of the embeddings of the closed forms."""
    shrinkages: tuple[float, ...] = (0.1, 0.3, 0.8, 0.95, 0.99)
    """Shrinkages of the closed forms."""

    SMALL = {"pixels": 32, "folds": 2, "size": 4}


def read_images(settings: Settings, path: Path) -> Any:
    """The images of a folder, as many as the settings say."""
    images = merged_sides(gsp.data.image_folder(str(path)))
    order = np.random.default_rng(0).permutation(images.num_classes)
    rows = [
        np.flatnonzero(images.labels == label)[: settings.images_per_class]
        for label in np.sort(order[: settings.classes])
    ]
    return images.subset(np.concatenate(rows))


def feature_maps(settings: Settings, paths: Any) -> np.ndarray:
    """Feature maps of MobileNetV2 of every image, float16."""
    side = settings.pixels
    network = mobilenet(side, settings.backbone_weights, settings.width)
    batches = gsp.data.image_batches(
        paths, preprocessing=gsp.data.Preprocessing(side, side)
    )
    parts = [
        network.predict_on_batch(np.asarray(batch) / 127.5 - 1.0)
        for batch in tqdm(batches, desc="images")
    ]
    return np.concatenate([maps.astype("float16") for maps in parts])


def pooled_rows(maps: np.ndarray) -> dict[str, np.ndarray]:
    """Normalized features of every image, by pooling."""
    parts = [pooled(maps[i : i + 256]) for i in range(0, len(maps), 256)]
    return {k: np.concatenate([part[k] for part in parts]) for k in parts[0]}


def fold_sides(
    labels: np.ndarray, folds: int, fold: int, validation: int = 4
) -> dict[str, np.ndarray]:
    """Positions of the images of each of `SIDES`.

    Of the classes that do not test, one in `validation` validates.
    """
    order = np.random.default_rng(0).permutation(np.unique(labels))
    tests = np.array_split(order, folds)[fold]
    others = np.random.default_rng(fold).permutation(np.setdiff1d(order, tests))
    count = max(2, len(others) // validation)
    classes = others[count:], others[:count], tests
    return {
        side: np.flatnonzero(np.isin(labels, of))
        for side, of in zip(SIDES, classes, strict=True)
    }


def koo_fu(
    rows: np.ndarray, labels: np.ndarray, size: int, shrinkage: float
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and kernel; one direction fewer than classes."""
    rows = rows.astype("float64")
    mean = rows.mean(axis=0)
    _, codes, counts = np.unique(
        labels, return_inverse=True, return_counts=True
    )
    means = np.stack(
        [rows[codes == n].mean(axis=0) for n in range(len(counts))]
    )
    residuals = rows - means[codes]
    within, basis = np.linalg.eigh(residuals.T @ residuals / len(rows))
    within = (1.0 - shrinkage) * within + shrinkage * within.mean()
    kernel = basis * within**-0.5
    between = np.sqrt(counts)[:, None] * (means - mean) @ kernel
    leading = np.linalg.svd(between, full_matrices=False)[2]
    return mean, kernel @ leading[: min(size, len(counts) - 1)].T


def discriminants(
    rows: np.ndarray, labels: np.ndarray, size: int, shrinkage: float
) -> tuple[np.ndarray, np.ndarray]:
    """Scikit-learn's linear discriminant analysis; one direction a class."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    count = min(size, len({*labels}) - 1)
    analysis = LinearDiscriminantAnalysis(
        solver="eigen", shrinkage=shrinkage, n_components=count
    ).fit(rows, labels)
    return rows.mean(axis=0), analysis.scalings_[:, :count]


def closed_form(
    name: str, rows: np.ndarray, labels: np.ndarray, size: int, shrinkage: float
) -> Callable[[np.ndarray], np.ndarray]:
    """A form that is fitted to rows: from features to embeddings."""
    if name in (LDA, KOO_FU):
        fit = discriminants if name == LDA else koo_fu
        mean, kernel = fit(rows, labels, size, shrinkage)
        return lambda features: (features - mean) @ kernel
    layer = gsp.layers.Whitening(size, shrinkage=shrinkage)
    layer.adapt(rows, labels if name == WHITENED else None)
    return lambda features: np.asarray(layer(features))


def fold_rows(
    rows: dict,
    labels: np.ndarray,
    sides: dict,
    size: int,
    shrinkages: tuple[float, ...],
    forms: tuple[str, ...] = FORMS,
) -> dict[str, dict]:
    """Scores of each method on the test classes of a fold."""

    def score(embeddings, side="test"):
        return scores(embeddings[sides[side]], labels[sides[side]])

    def validated(candidates):
        """Test scores of the best candidate on validation classes."""
        best = max(
            candidates,
            key=lambda name: score(candidates[name], "validation")["map_at_r"],
        )
        return score(candidates[best]) | {"chosen": best}

    methods = {"average": score(rows["average"]), BEST: validated(rows)}
    best = methods[BEST]["chosen"]
    fitted = rows[best][sides["train"]], labels[sides["train"]]
    for name in forms:
        candidates = {
            shrinkage: closed_form(name, *fitted, size, shrinkage)(rows[best])
            for shrinkage in ((1.0,) if name == "PCA" else shrinkages)
        }
        methods[name] = validated(candidates)
    return methods | {"classes": labels[sides["test"]]}


def measure(settings: Settings) -> dict:
    """Scores and paired gains of each data set."""
    sets = {}
    for path in settings.data_dirs:
        images = read_images(settings, path)
        labels = np.asarray(images.labels)
        rows = pooled_rows(feature_maps(settings, images.paths))
        folds = [
            fold_rows(
                rows,
                labels,
                fold_sides(labels, settings.folds, fold),
                settings.size,
                settings.shrinkages,
            )
            for fold in tqdm(range(settings.folds), desc=path.stem)
        ]
        sets[title_of(path, labels)] = summaries(folds, (BEST, WHITENED))
    return {"sets": sets}


def title_of(path: Path, labels: np.ndarray) -> str:
    """The title of a data set's table."""
    return f"{path.stem}: {len({*labels})} classes, {len(labels)} images"


def summaries(folds: list[dict], over: tuple[str, ...]) -> list[dict]:
    """The rows of a table: means over folds, paired gains over other rows."""
    return [_summary(n, folds, over) for n in folds[0] if n != "classes"]


def _summary(name, folds, over):
    row: dict[str, Any] = {"name": name}
    row["chosen"] = [fold[name].get("chosen", "") for fold in folds]
    for key in SCORES:
        if key in folds[0][name]:
            row[key] = float(np.mean([fold[name][key] for fold in folds]))

    def queries(method):
        return np.concatenate(
            [fold[method]["per_query"]["map_at_r"] for fold in folds]
        )

    classes = np.concatenate([fold["classes"] for fold in folds])
    row["gains"] = {
        other: gsp.metrics.paired_difference(
            queries(name), queries(other), classes
        )
        for other in over
        if other != name
    }
    return row


def tables(results: dict) -> list[Table]:
    """One table a data set."""
    made = []
    for title, rows in results["sets"].items():
        keys = [key for key in SCORES if any(key in row for row in rows)]
        over = [*dict.fromkeys(name for row in rows for name in row["gains"])]
        headings = ["", "chosen", *(SCORES[key] for key in keys)]
        headings += [f"over {name}" for name in over]
        cells = [
            [
                row["name"],
                ", ".join(dict.fromkeys(map(str, row["chosen"]))),
                *(f"{100 * row[k]:.1f}" if k in row else "" for k in keys),
                *(
                    gain_text(row["gains"][name])
                    if name in row["gains"]
                    else ""
                    for name in over
                ),
            ]
            for row in rows
        ]
        made.append(Table(headings, cells, 2, title))
    return made


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
