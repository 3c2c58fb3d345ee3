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

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

import keras_gsp as gsp
from keras_gsp.ops.covering import covering_radius
from keras_gsp.ops.distances import pairwise_distances
from keras_gsp.ops.prototype_assignment import soft_histogram
from training.datasets import glyphs
from training.pictures.palette import BLACK, BLUE, GREEN, VERMILION, picture
from training.recipes.backbone import build_backbone
from training.recipes.recipe import Recipe
from training.research.experiments.dominant_prototypes import in_plane
from training.research.report import (
    ExperimentSettings,
    Table,
    over_runs,
    run_measurement,
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

    SMALL = {
        "seeds": (0, 1),
        "images": 20,
        "num_prototypes": (4, SHOWN_PROTOTYPES),
    }


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


def hard_histogram(features: Any, prototypes: Any, *, affinity: str) -> Any:
    """Averages the hard assignment of features to prototypes (XML, (2.1)).

    Each feature counts for the prototype of largest affinity, the first one
    in a tie (the paper prints "minimizer").
    """
    size = features.shape[-1]
    rows = ops.reshape(features, (len(features), -1, size))
    prototypes = ops.cast(prototypes, rows.dtype)
    if affinity == "l2":
        scores = -pairwise_distances(rows, prototypes)
    else:
        scores = ops.matmul(rows, ops.transpose(prototypes))
    best = ops.argmax(scores, axis=-1)
    return ops.mean(ops.one_hot(best, len(prototypes)), axis=1)


def histograms(features: Any, prototypes: Any, sharpness: float) -> dict:
    """Four ways to assign features to prototypes."""
    soft = partial(soft_histogram, inverse_temperature=sharpness)
    return {
        name: histogram(features, prototypes, affinity=affinity)
        for name, histogram, affinity in (
            (HARD_L2, hard_histogram, "l2"),
            (SOFT_L2, soft, "l2"),
            (HARD_DOT, hard_histogram, "dot"),
            (SOFT_DOT, soft, "dot"),
        )
    }


def errors(features: Any, prototypes: Any, sharpness: float) -> dict[str, dict]:
    """Assignment -> how far averages are from combinations of prototypes."""
    flat = ops.reshape(features, (-1, features.shape[-1]))
    radius = float(covering_radius(flat, prototypes))
    average = np.mean(np.asarray(features), axis=(1, 2))
    found = {}
    for name, one in histograms(features, prototypes, sharpness).items():
        combined = np.asarray(ops.matmul(one, prototypes))
        apart = np.linalg.norm(average - combined, axis=1)
        found[name] = {
            "radius": radius,
            "mean_error": apart.mean(),
            "largest_error": apart.max(),
            # Rounding of a sum of many features is not a violation.
            "violations": np.mean(apart > radius * (1.0 + 1e-5)),
        }
    return found


def measure(settings: Settings) -> dict:
    """Covers the features with prototypes, counts violated bounds."""
    runs: dict[tuple, list[dict]] = {}
    shown = None
    for seed in settings.seeds:
        features = ops.convert_to_tensor(local_features(settings, seed))
        flat = ops.reshape(features, (-1, features.shape[-1]))
        # Greedy choices are nested: fewer prototypes are the first of them.
        chosen = gsp.ops.greedy_k_center(
            flat, flat[:0], max(settings.num_prototypes)
        )
        for count in settings.num_prototypes:
            prototypes = ops.take(flat, chosen[:count], axis=0)
            found = errors(features, prototypes, settings.inverse_temperature)
            for name, one in found.items():
                runs.setdefault((name, count), []).append(one)
            if shown is None and count == SHOWN_PROTOTYPES:
                shown = _plane(features, prototypes)
    rows = [
        {"assignment": name, "num_prototypes": count} | over_runs(found)
        for (name, count), found in runs.items()
    ]
    return {"rows": rows, "first_seed": shown}


def _plane(features, prototypes):
    """One image's features and its combinations, in two dimensions."""
    image = np.asarray(features[:1])
    flat = np.asarray(features).reshape(-1, features.shape[-1])
    transform = in_plane(flat).transform
    combined = {
        name: transform(np.asarray(ops.matmul(histogram, prototypes)))
        for name, histogram in histograms(image, prototypes, 10.0).items()
        if name in (HARD_L2, HARD_DOT)
    }
    return {
        "features": transform(flat[::5]),
        "image": transform(image.reshape(-1, flat.shape[1])),
        "average": transform(image.mean(axis=(1, 2))),
        "prototypes": transform(np.asarray(prototypes)),
        "combined": combined,
    }


def tables(results: dict) -> list[Table]:
    """One row for each assignment and number of prototypes."""
    digits = {"radius": 2, "mean_error": 2, "largest_error": 2, "violations": 3}
    rows = [
        [row["assignment"], row["num_prototypes"]]
        + [spread(row[name], digits=count) for name, count in digits.items()]
        for row in results["rows"]
    ]
    headings = ("assignment", "prototypes", "covering radius", "mean error")
    return [Table((*headings, "largest error", "share above radius"), rows)]


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
    looks: dict[str, tuple[str, dict[str, Any]]] = {
        "features": (".", {"color": "0.85", "ms": 3}),
        "image": (".", {"color": "0.45", "label": "an image's features"}),
        "prototypes": (
            "D",
            {
                "color": "none",
                "mec": GREEN,
                "label": f"{len(shown['prototypes'])} prototypes",
            },
        ),
        "average": ("*", {"color": BLACK, "ms": 15, "label": "their average"}),
    }
    for key, (marker, look) in looks.items():
        axis.plot(*np.array(shown[key]).T, marker, **look)
    for name, place in shown["combined"].items():
        color, _, marker = LOOKS[name]
        axis.plot(
            *np.array(place).T, marker, color=color, ms=10, label=name, ls=""
        )
    axis.set_xlabel("principal component 1")
    axis.set_ylabel("principal component 2")
    axis.margins(y=0.3)
    axis.legend(fontsize=11, loc="upper left")


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
