"""The picture of `zero_shot_prediction`, and what its scores are called."""

from pathlib import Path

import numpy as np

from training.pictures.palette import METHODS, picture

COLORS = {**METHODS, "GSP+XML": METHODS["XML"]}
MEASURES = {
    "distance": "distance",
    "distance_of_mean": "distance, mean of half",
    "cosine": "cosine",
    "centred_cosine": "cosine, centred",
    "map_c": "MAP_c",
    "map_x": "MAP_x",
}


def draw(path: Path, results: dict) -> None:
    """Draws histograms of unseen classes and the scores of every method."""
    histograms = results["first_seed_histograms"]
    largest = max(np.max(shown) for shown in histograms.values())
    widths = [1.0] * len(histograms) + [2.2, 1.2]
    with picture(
        path, 1, len(widths), figsize=(17, 5.6), width_ratios=widths
    ) as axes:
        for axis, (method, shown) in zip(
            axes[0], histograms.items(), strict=False
        ):
            image = axis.imshow(
                shown, aspect="auto", cmap="viridis", vmin=0, vmax=largest
            )
            axis.set_title(method, color=COLORS[method])
            axis.set_xlabel("prototype")
            axis.set_yticks([])
        axes[0, 0].set_ylabel("unseen class")
        axes[0, 0].figure.colorbar(
            image, ax=list(axes[0, :-2]), label="mean histogram", pad=0.02
        )
        groups = (
            ("cosine", "centred_cosine", "map_c", "map_x"),
            ("distance", "distance_of_mean"),
        )
        for axis, names in zip(axes[0, -2:], groups, strict=True):
            _draw_scores(axis, results["scores"], names)
        axes[0, -2].set_ylabel("cosine, or MAP@R")
        axes[0, -1].set_ylabel("distance to true class embedding")
        axes[0, -2].legend(fontsize=11)


def _draw_scores(axis, scores, names):
    width = 0.8 / len(scores)
    for number, (method, found) in enumerate(scores.items()):
        places = np.arange(len(names)) + (number - 1) * width
        axis.bar(
            places,
            [found[name]["mean"] for name in names],
            0.95 * width,
            yerr=[(found[name]["std"] or 0.0) for name in names],
            color=COLORS[method],
            ecolor="0.5",
            label=method,
        )
    axis.set_xticks(
        range(len(names)), [MEASURES[n].replace(", ", "\n") for n in names]
    )
