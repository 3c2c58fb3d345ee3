"""The picture of `gap_as_prototypes`, and what its curves are called."""

from pathlib import Path

import numpy as np

from training.pictures.palette import BLACK, BLUE, GREEN, VERMILION, picture

HARD_L2, HARD_DOT = "nearest prototype", "largest dot product"
SOFT_L2, SOFT_DOT = "softmax of -distance", "softmax of dot product"
LOOKS = {
    HARD_L2: (BLUE, "-", "o"),
    SOFT_L2: (GREEN, "--", "s"),
    HARD_DOT: (VERMILION, "-.", "^"),
    SOFT_DOT: (BLACK, ":", "v"),
}


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
