"""Does pooling find the picture that counts among three that distract?

    python -m training.research.experiments.collage
    python -m training.research.experiments.collage --data-dir cifar10.zip

Each image is a 2 x 2 canvas: one cell shows the class, three show what has
nothing to do with it. Average pooling, generalized sum pooling, the same with
the zero-shot regularizer, and as upper bound average pooling on images whose
distractors are left out, in training and in the test. All are trained for the
same number of steps and scored on classes, and distractors, never seen. Thesis,
section 5.3.2, which uses CIFAR-100: give its folder, or CIFAR-10 as an image
folder, as `--data-dir`; by default the letters among symbols of `glyphs`.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from tqdm import tqdm

from training.pictures.palette import METHODS, SKY, picture
from training.pictures.pooling_weights import pooling_weights
from training.recipes.glyphs import GAP, GSP, ZSR
from training.research.experiments.distracted import (
    DistractedSettings,
    load_splits,
    short_recipe,
)
from training.research.experiments.regularizer_share import columns, over_seeds
from training.research.experiments.report import run_experiment
from training.research.experiments.short_training import retrieval, trained
from training.research.results.markdown import (
    markdown_table,
    mean_and_deviation,
    spread,
)

UPPER = "GAP, no distractors"
RECIPES = {"GAP": GAP, "GSP": GSP, "GSP+ZSR": ZSR, UPPER: GAP}
COLORS = {**METHODS, UPPER: SKY}
MEASURES = {"map_at_r": "MAP@R", "precision_at_1": "P@1"}
SHOWN_IMAGES = 6


@dataclass(frozen=True, kw_only=True)
class Settings(DistractedSettings):
    """Data and training."""

    def small(self) -> "Settings":
        """Two steps, few prototypes."""
        small: Any = super().small()
        return replace(small, num_prototypes=4)


def measure(settings: Settings) -> dict:
    """Trains every method for every seed, scores unseen classes."""
    data = load_splits(settings)
    distilled = load_splits(settings, distilled=True)
    scores = {}
    shown = {"images": _shown(data.test), "weights": {}}
    for method, base in RECIPES.items():
        splits = distilled if method == UPPER else data
        runs, notes = [], []
        for seed in tqdm(settings.seeds, desc=method):
            recipe = short_recipe(base, settings, splits.train, seed)
            encoder, note = trained(recipe, splits.train)
            notes.append(note)
            runs.append(retrieval(encoder, splits.test))
            if base.pooling == "gsp" and method not in shown["weights"]:
                shown["weights"][method] = pooling_weights(
                    encoder, shown["images"]
                )
        scores[method] = {
            name: mean_and_deviation([run[name] for run in runs])
            for name in runs[0]
        } | over_seeds(notes)
    return {"scores": scores, "first_seed": shown}


def _shown(images):
    """Images of different unseen classes, spread over the data set."""
    chosen = np.linspace(0, len(images) - 1, SHOWN_IMAGES).astype(int)
    return images.images[chosen]


def draw(path: Path, results: dict) -> None:
    """Draws the scores beside unseen images and what was pooled of them."""
    shown = results["first_seed"]
    rows = 1 + len(shown["weights"])
    widths = [3.2] + [1.0] * SHOWN_IMAGES
    with picture(
        path, rows, len(widths), figsize=(16, 5.6), width_ratios=widths
    ) as axes:
        for axis in axes[:, 0]:
            axis.remove()
        left = axes[0, 0].get_gridspec()[:, 0]
        _draw_scores(axes[0, 1].figure.add_subplot(left), results["scores"])
        images = np.array(shown["images"], "uint8")
        # Multiples of what average pooling would give everywhere.
        weights = {
            method: np.array(found) * np.array(found)[0].size
            for method, found in shown["weights"].items()
        }
        largest = max(found.max() for found in weights.values())
        _draw_row(axes[0, 1:], images, "unseen image", "black")
        for row, (method, found) in zip(axes[1:], weights.items(), strict=True):
            _draw_row(row[1:], images, method, COLORS[method])
            side = images.shape[1]
            for axis, found_one in zip(row[1:], found, strict=True):
                overlay = axis.imshow(
                    found_one,
                    cmap="viridis",
                    alpha=0.65,
                    vmin=0.0,
                    vmax=largest,
                    extent=(-0.5, side - 0.5, side - 0.5, -0.5),
                    interpolation="nearest",
                )
        axes[0, 1].figure.colorbar(
            overlay, ax=list(axes[:, -1]), label="pooling weight / average"
        )


def _draw_row(axes, images, label, color):
    for axis, image in zip(axes, images, strict=True):
        axis.imshow(image)
        axis.set_xticks([])
        axis.set_yticks([])
    axes[0].set_ylabel(label, color=color)


def _draw_scores(axis, scores):
    for place, (method, found) in enumerate(scores.items()):
        numbers = found["map_at_r"]
        axis.bar(place, numbers["mean"], 0.7, color=COLORS[method])
        values = numbers["values"]
        axis.plot([place] * len(values), values, "o", color="0.6", ms=6)
    axis.set_xticks(
        range(len(scores)), [name.replace(", ", ",\n") for name in scores]
    )
    axis.tick_params(axis="x", labelsize=11)
    axis.set_ylabel("MAP@R on unseen classes")
    axis.set_ylim(bottom=0.0)
    axis.set_title("mean, and each seed")


def table(results: dict) -> str:
    """One row a method."""
    scores = results["scores"]
    headings, cells = columns(list(scores.values()))
    rows = [
        [method, *(spread(found[name], digits=3) for name in MEASURES), *own]
        for (method, found), own in zip(scores.items(), cells, strict=True)
    ]
    return markdown_table(["", *MEASURES.values(), *headings], rows)


def main(arguments: list[str] | None = None) -> None:
    """Runs the experiment."""
    settings = tyro.cli(Settings, description=__doc__, args=arguments)
    run_experiment("collage", settings, measure, draw, table)


if __name__ == "__main__":
    main()
