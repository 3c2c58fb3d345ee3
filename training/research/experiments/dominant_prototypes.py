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

The picture shows pooling weights of the first seed, colored by the dominant
prototype (Figure 4 of GSP and of XML).
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

import keras_gsp as gsp
from keras_gsp.models.encoder import features_before
from training.datasets import glyphs
from training.pictures.palette import PROTOTYPES, picture
from training.research.experiments import zero_shot_prediction as models
from training.research.experiments.zero_shot_prediction import (
    COLORS,
    REGULARIZERS,
)
from training.research.report import Table, over_runs, run_measurement, spread
from training.research.study_record import cell_share

MEASURES = {
    "map_at_r": "MAP@R",
    "evenness": "evenness",
    "class_distance": "class distance",
    "main_prototypes": "main prototypes",
    "shared_main": "classes that share their main prototype",
    "mass_on_subject": "mass on the subject",
    "share": "regularizer's share of the gradient",
}
UNTRAINED = "untrained"
IMAGE_CLASSES, IMAGES_OF_CLASS = 4, 2
Settings = models.FewPrototypes


def prototype_maps(encoder: Any, images: Any) -> Any:
    """The part of each pooling weight that goes to each prototype.

    (images, rows, columns, prototypes); the maps of an image sum to 1, and
    over rows and columns to its histogram.
    """
    pooling = encoder.get_layer("pooling")
    features = features_before(encoder, pooling).predict(images, verbose=0)
    return np.asarray(pooling.transport_plan(features) / pooling.ratio)


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


def measure(settings: Settings) -> dict:
    """Trains every method for every seed, measures maps and histograms."""
    known, examined = models.known_and_examined(settings)
    cells = None  # A picture of a folder fills its image.
    if settings.data_dir is None:
        sizes: Any = models.SMALL_GLYPHS if settings.smoke else {}
        cells = glyphs.letter_cells("test", **sizes)
    rows: list[dict] = []
    panels: dict[str, Any] = {}
    for method in (UNTRAINED, *REGULARIZERS):
        runs: list[dict] = []
        for seed in tqdm(settings.seeds, desc=method):
            encoder, share = models.train(settings, method, known, seed)
            facts, panel = _examine(encoder, examined, cells)
            runs.append(facts | share)
            if method != UNTRAINED:
                panels.setdefault(method, panel)
        rows.append({"method": method} | over_runs(runs))
    shown = examined.images[_shown(examined.labels)]
    return {"rows": rows, "drawn": {"images": shown, "panels": panels}}


def _examine(encoder, images, cells):
    """The measures of one model, and the maps that are drawn of it."""
    maps = prototype_maps(encoder, images.images)
    found = encoder.predict(images.images, verbose=0)["embedding"]
    scores = gsp.metrics.retrieval_scores(found, images.labels)
    facts = {"map_at_r": scores["map_at_r"]}
    histograms = maps.sum(axis=(1, 2))
    facts |= histogram_facts(models.class_means(histograms, images.labels))
    if cells is not None:
        facts["mass_on_subject"] = cell_share(maps.sum(-1), cells, 2)
    return facts, maps[_shown(images.labels)]


def _shown(labels):
    """Some images of the first classes."""
    classes = range(min(IMAGE_CLASSES, labels.max() + 1))
    rows = [np.flatnonzero(labels == one)[:IMAGES_OF_CLASS] for one in classes]
    return np.concatenate(rows)


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
    """Images above their weights, colored by prototype, a row a method.

    A row's largest weight is opaque, weight 0 transparent.
    """
    from matplotlib.patches import Patch

    images, panels = results["drawn"]["images"], results["drawn"]["panels"]
    size = (1.5 * len(images) + 0.8, 1.55 * (1 + len(panels)) + 0.7)
    with picture(path, 1 + len(panels), len(images), figsize=size) as axes:
        for axis in axes.flat:
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(False)
        axes[0, 0].set_ylabel("image", color="black")
        for axis, image in zip(axes[0], images, strict=True):
            axis.imshow(image)
        for row, (method, maps) in zip(axes[1:], panels.items(), strict=True):
            row[0].set_ylabel(method, color=COLORS[method])
            weights = maps.sum(axis=-1)
            for axis, image, dominant, opacity in zip(
                row,
                images,
                maps.argmax(axis=-1),
                weights / weights.max(),
                strict=True,
            ):
                _draw_map(axis, image, dominant, opacity)
        axes[0, 0].figure.legend(
            handles=[
                Patch(color=color, label=number)
                for number, color in enumerate(PROTOTYPES[: maps.shape[-1]])
            ],
            title="dominant prototype",
            loc="outside lower center",
            ncols=maps.shape[-1],
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


if __name__ == "__main__":
    run_measurement(sys.modules[__name__])
