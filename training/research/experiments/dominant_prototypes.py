r"""What do prototypes represent: classes, or parts that classes share?

    python -m training.research.experiments.dominant_prototypes
    python -m training.research.experiments.dominant_prototypes --data-dir cifar10.zip

The models of `zero_shot_prediction`: generalized sum pooling with 8 prototypes
and ProxyNCA++, alone, with the zero-shot (ZSR) and with the cross-batch
regularizer (XML), on `glyphs` by default. All start from `untrained`. The map
of an image holds the share of its pooled mass that moves from each place to
each prototype. Its sum over places is the histogram; the prototype that
receives most from a place is dominant there. Measured on images of unseen
classes, or of a folder on unseen images of the training classes, as in the
papers:

- evenness: entropy of a class's mean histogram as a share of the largest
  possible; 1 if a class uses all prototypes equally, 0 if it uses one.
- class distance: Jensen-Shannon distance (base 2, in [0, 1]) between the mean
  histograms of two classes, mean over pairs.
- main prototypes: number of prototypes that are the largest entry of some
  class's mean histogram, and share of classes that share their largest entry
  with another class.
- mass on the subject: share of the pooled mass from the cell that shows the
  class; 0.25 for average pooling.
- active prototypes of a class: those that are dominant for at least a tenth of
  the class's pooled mass. Their number, and the overlap of the sets of two
  classes (Jaccard, mean over pairs).

Pictures of the first seed: `NAME.png`, pooling weights colored by the dominant
prototype (Figure 4 of GSP and of XML); `NAME_hulls.png`, convex hulls of each
class's active prototypes on the prototypes' first two principal components
(thesis, Figures 5.6 and 4.3).
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

import keras_gsp as gsp
from keras_gsp.models.encoder import features_before
from keras_gsp.ops.normalization import unit_ball
from training.pictures.palette import PROTOTYPES, picture
from training.research.experiments.few_prototypes import (
    COLORS,
    REGULARIZERS,
    UNTRAINED,
    class_means,
    encoded,
    examined_subject_cells,
    known_and_examined,
    short_names,
    train,
)
from training.research.experiments.few_prototypes import (
    FewPrototypesSettings as Settings,
)
from training.research.experiments.synthetic_tokens import convex_hull
from training.research.report import (
    Table,
    over_runs,
    run_measurement,
    spread,
)
from training.research.study_record import cell_share

MEASURES = {
    "map_at_r": "MAP@R",
    "evenness": "evenness",
    "class_distance": "class distance",
    "main_prototypes": "main prototypes",
    "shared_main": "classes that share their main prototype",
    "mass_on_subject": "mass on the subject",
    "active": "active prototypes of a class",
    "active_overlap": "overlap of active sets",
    "share": "regularizer's share of the gradient",
}
ACTIVE_SHARE = 0.1
"""Of a class's pooled mass: what makes a prototype active."""
HULL_CLASSES = 6
IMAGE_CLASSES, IMAGES_OF_CLASS = 4, 2


def prototype_maps(encoder: Any, images: Any) -> Any:
    """The part of each pooling weight that goes to each prototype.

    (images, rows, columns, prototypes); the maps of an image sum to 1, and
    over rows and columns to its histogram.
    """
    pooling = encoder.get_layer("pooling")
    features = features_before(encoder, pooling).predict(images, verbose=0)
    return np.asarray(pooling.transport_plan(features) / pooling.ratio)


def dominated_mass(maps: Any) -> Any:
    """Share of each image's mass from where each prototype is dominant.

    From maps (num_images, rows, columns, num_prototypes), each image's sum 1,
    to (num_images, num_prototypes).
    """
    is_dominant = np.eye(maps.shape[-1])[maps.argmax(axis=-1)]
    weights = maps.sum(axis=-1, keepdims=True)
    return np.sum(weights * is_dominant, axis=(1, 2))


def histogram_facts(histograms: Any) -> dict[str, float]:
    """How concentrated the classes' mean histograms are, and how different."""
    from scipy.spatial.distance import jensenshannon
    from scipy.stats import entropy

    one, other = np.triu_indices(len(histograms), k=1)
    distances = jensenshannon(
        histograms[one], histograms[other], base=2.0, axis=1
    )
    main = histograms.argmax(axis=1)
    counts = np.bincount(main)
    return {
        "evenness": np.mean(
            entropy(histograms, axis=1) / np.log(histograms.shape[1])
        ),
        # Rounding of equal histograms may leave the root of less than 0.
        "class_distance": np.mean(np.nan_to_num(distances)),
        "main_prototypes": np.count_nonzero(counts),
        "shared_main": np.mean(counts[main] > 1),
    }


def active_facts(active: Any) -> dict[str, Any]:
    """How many prototypes classes activate, and how far these overlap.

    `active` is boolean, (num_classes, num_prototypes).
    """
    from scipy.spatial.distance import pdist

    return {
        "active": np.mean(active.sum(axis=1)),
        "active_overlap": np.mean(1.0 - pdist(active, "jaccard")),
    }


def measure(settings: Settings) -> dict:
    """Trains every method for every seed, measures maps and histograms."""
    if settings.num_prototypes > len(PROTOTYPES):
        raise ValueError(
            f"`num_prototypes` must be at most {len(PROTOTYPES)}, one color "
            f"each. Received: num_prototypes={settings.num_prototypes}."
        )
    known, examined = known_and_examined(settings)
    cells = examined_subject_cells(settings)
    rows: list[dict] = []
    panels: dict[str, dict] = {}
    for method in (UNTRAINED, *REGULARIZERS):
        runs: list[dict] = []
        for seed in tqdm(settings.seeds, desc=method):
            encoder, share = train(settings, method, known, seed)
            facts, panel = _examine(encoder, examined, cells)
            runs.append(facts | share)
            if method != UNTRAINED:
                panels.setdefault(method, panel)
        rows.append({"method": method} | over_runs(runs))
    return {
        "rows": rows,
        "drawn": {
            "classes": short_names(examined)[:HULL_CLASSES],
            "images": examined.images[_shown(examined.labels)],
            "panels": panels,
        },
    }


def _examine(encoder, images, cells):
    """The measures of one model, and what is drawn of it."""
    from sklearn.decomposition import PCA

    maps = prototype_maps(encoder, images.images)
    prototypes = np.asarray(unit_ball(encoder.get_layer("pooling").prototypes))
    plane = PCA(2, svd_solver="full").fit(prototypes)
    places = plane.transform(prototypes)
    histograms = class_means(maps.sum(axis=(1, 2)), images.labels)
    dominated = dominated_mass(maps)
    of_classes = class_means(dominated, images.labels)
    active = of_classes >= ACTIVE_SHARE
    embeddings = encoded(encoder, images)["embedding"]
    scores = gsp.metrics.retrieval_scores(embeddings, images.labels)
    facts = {"map_at_r": scores["map_at_r"]}
    facts |= histogram_facts(histograms) | active_facts(active)
    if cells is not None:
        facts["mass_on_subject"] = cell_share(maps.sum(-1), cells, 2)
    shown = maps[_shown(images.labels)]
    points = dominated @ places
    return facts, {
        "dominant": shown.argmax(axis=-1),
        "weights": shown.sum(axis=-1),
        "plane_share": plane.explained_variance_ratio_.sum(),
        "places": places,
        "active": active[:HULL_CLASSES],
        "points": [
            points[images.labels == label]
            for label in range(min(HULL_CLASSES, images.num_classes))
        ],
    }


def _shown(labels):
    """Some images of the first classes."""
    return np.concatenate(
        [
            np.flatnonzero(labels == label)[:IMAGES_OF_CLASS]
            for label in range(min(IMAGE_CLASSES, labels.max() + 1))
        ]
    )


def tables(results: dict) -> list[Table]:
    """One row a measure, one column a method."""
    rows = results["rows"]
    lines = []
    for name, said in MEASURES.items():
        cells = [spread(r[name], digits=3) if name in r else "-" for r in rows]
        if any(cell != "-" for cell in cells):
            lines.append([said, *cells])
    return [Table(["", *(row["method"] for row in rows)], lines)]


def draw(path: Path, results: dict) -> None:
    """Draws maps, and hulls in a second file."""
    shown = results["drawn"]
    _draw_maps(path, shown)
    _draw_hulls(path.with_stem(f"{path.stem}_hulls"), shown)


def _draw_maps(path, shown):
    """Images above their weights, colored by prototype, a row a method.

    A row's largest weight is opaque, weight 0 transparent.
    """
    from matplotlib.patches import Patch

    images, panels = shown["images"], shown["panels"]
    size = (1.5 * len(images) + 0.8, 1.55 * (1 + len(panels)) + 0.7)
    with picture(path, 1 + len(panels), len(images), figsize=size) as axes:
        for axis in axes.flat:
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(False)
        axes[0, 0].set_ylabel("image", color="black")
        for axis, image in zip(axes[0], images, strict=True):
            axis.imshow(image)
        for row, (method, panel) in zip(axes[1:], panels.items(), strict=True):
            row[0].set_ylabel(method, color=COLORS[method])
            opacity = panel["weights"] / panel["weights"].max()
            for axis, image, dominant, opaque in zip(
                row, images, panel["dominant"], opacity, strict=True
            ):
                _draw_map(axis, image, dominant, opaque)
        count = len(next(iter(panels.values()))["places"])
        axes[0, 0].figure.legend(
            handles=[
                Patch(color=color, label=number)
                for number, color in enumerate(PROTOTYPES[:count])
            ],
            title="dominant prototype",
            loc="outside lower center",
            ncols=count,
        )


def _draw_map(axis, image, dominant, opacity):
    """A pale image under its prototypes' colors."""
    from matplotlib.colors import to_rgb

    extent = axis.imshow(255 - (255 - image) // 3).get_extent()
    colors = np.array([to_rgb(color) for color in PROTOTYPES])[dominant]
    axis.imshow(
        np.concatenate([colors, opacity[..., None]], axis=-1),
        extent=extent,
        interpolation="nearest",
    )


def _draw_hulls(path, shown):
    """Hulls of active prototypes, and the images of these classes."""
    panels = shown["panels"]
    size = (5.4 * len(panels), 5.8)
    with picture(path, 1, len(panels), figsize=size) as axes:
        for axis, (method, panel) in zip(axes[0], panels.items(), strict=True):
            _draw_plane(axis, panel, shown["classes"])
            axis.set_title(method, color=COLORS[method])
            axis.set_xlabel(
                "prototypes' principal component 1\n"
                f"({panel['plane_share']:.0%} of variance in the plane)"
            )
        axes[0, 0].set_ylabel("principal component 2")
        axis.figure.legend(
            *axis.get_legend_handles_labels(),
            title="class: an image's prototypes, by the mass they dominate",
            loc="outside lower center",
            ncols=HULL_CLASSES,
        )


def _draw_plane(axis, panel, classes):
    from matplotlib.colors import to_rgba

    places = panel["places"]
    for number, (active, points) in enumerate(
        zip(panel["active"], panel["points"], strict=True)
    ):
        color = PROTOTYPES[number]
        axis.fill(
            *convex_hull(places[active]).T,
            facecolor=to_rgba(color, 0.08),
            edgecolor=color,
            # Hulls of the same prototypes lie inside one another.
            lw=2.0 + 2.0 * (len(panel["active"]) - 1 - number),
            joinstyle="round",
        )
        axis.plot(*points.T, "o", ms=5, color=color, label=classes[number])
    axis.plot(*places.T, "D", ms=8, color="white", mec="black", mew=1.5)
    for number, place in enumerate(places):
        axis.annotate(str(number), place, (6, 6), textcoords="offset points")
    axis.margins(0.12)


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
