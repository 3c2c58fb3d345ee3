"""Is average pooling a convex combination of prototypes?

    python -m training.research.experiments.gap_as_prototypes

Chapter 4 of the thesis replaces each local feature by a prototype, so that the
average feature becomes a combination of prototypes weighted by the image's
histogram. Lemma 2.1 of XML bounds the error by the covering radius of the
prototypes. It holds when each feature is assigned to its nearest prototype;
XML prints the largest dot product, for which it fails. Right: Figure 3 of XML.

Prototypes are chosen by greedy k-center among the local features of `glyphs`
in a convolutional network with random weights, another one for each seed.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tyro
from keras import ops

import keras_gsp as gsp
from keras_gsp.ops.prototype_assignment import hard_histogram, soft_histogram
from training.datasets import glyphs
from training.pictures.palette import BLACK, BLUE, GREEN, VERMILION, picture
from training.recipes.backbone import build_backbone
from training.recipes.recipe import Recipe
from training.research.report import (
    ExperimentSettings,
    markdown_table,
    mean_and_deviation,
    run_experiment,
    spread,
)

HARD_L2, HARD_DOT = "nearest prototype", "largest dot product"
SOFT_L2, SOFT_DOT = "softmax of -distance", "softmax of dot product"
LOOKS = {
    HARD_L2: (BLUE, "-", "o"),
    SOFT_L2: (GREEN, "--", "s"),
    HARD_DOT: (VERMILION, "-.", "^"),
    SOFT_DOT: (BLACK, ":", "v"),
}
SHOWN_PROTOTYPES = 24
"""As many as Figure 3 of XML draws."""


@dataclass(frozen=True, kw_only=True)
class Settings(ExperimentSettings):
    """Which local features, and how many prototypes for them."""

    images: int = 200
    """Images whose local features are covered."""
    num_prototypes: tuple[int, ...] = (4, 8, 16, 24, 32, 64)
    inverse_temperature: float = 10.0
    """Sharpness of the soft histograms."""

    def small(self) -> "Settings":
        """Few images and prototypes."""
        return replace(
            self, seeds=(0, 1), images=20, num_prototypes=(4, SHOWN_PROTOTYPES)
        )


def local_features(settings: Settings, seed: int) -> Any:
    """Local features of images, (images, height, width, channels)."""
    keras.utils.set_random_seed(seed)
    splits = glyphs.load(
        train_classes=20,
        train_samples=-(-settings.images // 20),
        validation_classes=1,
        test_classes=1,
        test_samples=1,
    )
    images = splits.train.images[: settings.images]
    backbone = build_backbone(Recipe(), images.shape[1:])
    return backbone.predict(images, verbose=0)


def histograms(
    features: Any, prototypes: Any, inverse_temperature: float
) -> dict[str, Any]:
    """Four ways to assign features to prototypes."""
    soft = {"inverse_temperature": inverse_temperature}
    return {
        HARD_L2: hard_histogram(features, prototypes, affinity="l2"),
        SOFT_L2: soft_histogram(features, prototypes, affinity="l2", **soft),
        HARD_DOT: hard_histogram(features, prototypes, affinity="dot"),
        SOFT_DOT: soft_histogram(features, prototypes, affinity="dot", **soft),
    }


def errors_and_radius(
    features: Any, prototypes: Any, inverse_temperature: float
) -> tuple[Any, Any]:
    """How far average features are from their combinations of prototypes.

    Returns:
        Assignment -> errors (images,), and the covering radius.
    """
    flat = ops.reshape(features, (-1, features.shape[-1]))
    radius = float(gsp.ops.covering_radius(flat, prototypes))
    average = np.mean(np.asarray(features), axis=(1, 2))
    errors = {}
    for name, histogram in histograms(
        features, prototypes, inverse_temperature
    ).items():
        combined = ops.matmul(histogram, prototypes)
        errors[name] = np.linalg.norm(average - np.asarray(combined), axis=1)
    return errors, radius


def measure(settings: Settings) -> dict:
    """Covers the features with prototypes, counts violated bounds."""
    rows, shown = [], None
    for seed in settings.seeds:
        features = ops.convert_to_tensor(local_features(settings, seed))
        flat = ops.reshape(features, (-1, features.shape[-1]))
        # Greedy choices are nested: fewer prototypes are the first of them.
        chosen = gsp.ops.greedy_k_center(
            flat, flat[:0], max(settings.num_prototypes)
        )
        for count in settings.num_prototypes:
            prototypes = ops.take(flat, chosen[:count], axis=0)
            errors, radius = errors_and_radius(
                features, prototypes, settings.inverse_temperature
            )
            rows += _rows(errors, radius, count)
            if shown is None and count == SHOWN_PROTOTYPES:
                shown = _plane(features, prototypes)
    return {
        "rows": _over_seeds(rows),
        "first_seed": shown,
    }


def _rows(errors, radius, count):
    return [
        {
            "assignment": name,
            "num_prototypes": count,
            "radius": radius,
            "mean_error": found.mean(),
            "largest_error": found.max(),
            # Rounding of a sum of many features is not a violation.
            "violations": np.mean(found > radius * (1.0 + 1e-5)),
        }
        for name, found in errors.items()
    ]


def _over_seeds(rows):
    """Joins the rows of one assignment and number of prototypes."""
    joined: dict[tuple, list[dict]] = {}
    for row in rows:
        key = row["assignment"], row["num_prototypes"]
        joined.setdefault(key, []).append(row)
    measures = ("radius", "mean_error", "largest_error", "violations")
    return [
        {"assignment": name, "num_prototypes": count}
        | {m: mean_and_deviation([run[m] for run in runs]) for m in measures}
        for (name, count), runs in joined.items()
    ]


def _plane(features, prototypes):
    """One image's features and its combinations, in two dimensions."""
    image = np.asarray(features[:1])
    flat = np.asarray(features).reshape(-1, features.shape[-1])
    mean = flat.mean(axis=0)
    axes = np.linalg.svd(flat - mean, full_matrices=False)[2][:2].T
    combined = {
        name: (np.asarray(ops.matmul(histogram, prototypes)) - mean) @ axes
        for name, histogram in histograms(image, prototypes, 10.0).items()
        if name in (HARD_L2, HARD_DOT)
    }
    return {
        "features": (flat[::5] - mean) @ axes,
        "image": (image.reshape(-1, flat.shape[1]) - mean) @ axes,
        "average": (image.mean(axis=(1, 2)) - mean) @ axes,
        "prototypes": (np.asarray(prototypes) - mean) @ axes,
        "combined": combined,
    }


def table(results: dict) -> str:
    """One row for each assignment and number of prototypes."""
    rows = [
        [
            row["assignment"],
            row["num_prototypes"],
            spread(row["radius"], digits=2),
            spread(row["mean_error"], digits=2),
            spread(row["largest_error"], digits=2),
            spread(row["violations"], digits=3),
        ]
        for row in results["rows"]
    ]
    headings = (
        "assignment",
        "prototypes",
        "covering radius",
        "mean error",
        "largest error",
        "share above radius",
    )
    return markdown_table(headings, rows)


def draw(path: Path, results: dict) -> None:
    """Draws errors and violations, and one image in the plane."""
    with picture(path, 1, 3, figsize=(17, 5.4)) as axes:
        error_axis, share_axis, plane_axis = axes[0]
        for name, (color, style, marker) in LOOKS.items():
            own = [r for r in results["rows"] if r["assignment"] == name]
            look = {"color": color, "ls": style, "marker": marker}
            _draw_curve(error_axis, own, "mean_error", name, look)
            _draw_curve(share_axis, own, "violations", name, look, 100.0)
        error_axis.fill_between(
            [row["num_prototypes"] for row in own],
            [row["radius"]["mean"] for row in own],
            color="0.85",
            label="below the covering radius",
        )
        error_axis.set_yscale("log")
        error_axis.set_ylabel("|average - combination|, mean of images")
        share_axis.set_ylabel("images that violate the bound, %")
        share_axis.set_ylim(-3, 103)
        for axis in (error_axis, share_axis):
            axis.set_xscale("log", base=2)
            axis.set_xlabel("number of prototypes")
            counts = [row["num_prototypes"] for row in own]
            axis.set_xticks(counts, counts)
        error_axis.figure.legend(
            *error_axis.get_legend_handles_labels(),
            loc="outside lower center",
            ncols=5,
        )
        _draw_plane(plane_axis, results["first_seed"])


def _draw_curve(axis, rows, key, name, look, scale=1.0):
    axis.errorbar(
        [row["num_prototypes"] for row in rows],
        [scale * row[key]["mean"] for row in rows],
        [scale * (row[key]["std"] or 0.0) for row in rows],
        label=name,
        **look,
    )


def _draw_plane(axis, shown):
    points = {key: np.array(v) for key, v in shown.items() if key != "combined"}
    axis.plot(*points["features"].T, ".", color="0.85", ms=3)
    axis.plot(
        *points["image"].T, ".", color="0.45", label="an image's features"
    )
    axis.plot(
        *points["prototypes"].T,
        "D",
        color="none",
        markeredgecolor=GREEN,
        label=f"{len(points['prototypes'])} prototypes",
    )
    axis.plot(
        *points["average"].T, "*", color=BLACK, ms=15, label="their average"
    )
    for name, place in shown["combined"].items():
        color, _, marker = LOOKS[name]
        axis.plot(
            *np.array(place).T, marker, color=color, ms=10, label=name, ls=""
        )
    axis.set_xlabel("principal component 1")
    axis.set_ylabel("principal component 2")
    axis.margins(y=0.3)
    axis.legend(fontsize=11, loc="upper left")


def main(arguments: list[str] | None = None) -> None:
    """Runs the experiment."""
    settings = tyro.cli(Settings, description=__doc__, args=arguments)
    run_experiment("gap_as_prototypes", settings, measure, draw, table)


if __name__ == "__main__":
    main()
