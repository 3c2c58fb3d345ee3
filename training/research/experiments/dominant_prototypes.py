r"""What do prototypes stand for: classes, or parts that classes share?

    python -m training.research.experiments.dominant_prototypes
    python -m training.research.experiments.dominant_prototypes --classes seen
    python -m training.research.experiments.dominant_prototypes --data-dir cifar10.zip
    python -m training.research.experiments.dominant_prototypes --data-dir cifar10.zip \
        --distilled --classes seen

The models of `zero_shot_prediction`: generalized sum pooling with 8 prototypes
and ProxyNCA++, alone, with the zero-shot (ZSR) and with the cross-batch
regularizer (XML), on collages; `glyphs` by default. `untrained` is where all
of them start. A map of an image says which share of its pooled mass goes from
each place to each prototype. Summed over the places it is the histogram; the
prototype that takes most at a place is dominant there. Looked at are images
of unseen classes, or unseen images of the training classes (`--classes seen`,
as in the papers):

- evenness: entropy of a class's mean histogram, of the largest possible; 1
  where a class takes all prototypes alike, 0 where it takes one.
- class distance: Jensen-Shannon distance (base 2, in [0, 1]) between the mean
  histograms of two classes, mean over pairs; 0 where no class has its own.
- main prototypes: how many prototypes are the largest entry of some class's
  mean histogram; and the share of classes whose largest entry is another
  class's too. With more classes than prototypes most have to share.
- mass on the subject: share of the pooled mass that comes from the cell that
  shows the class; 0.25 where nothing is chosen.
- active prototypes of a class: those that dominate where at least a tenth
  (`--active-share`) of the class's pooled mass comes from. Their number, and
  how far two classes' sets overlap (Jaccard, mean over pairs). The third
  picture shows their convex hulls in the plane of the prototypes' first two
  principal components.

Beside the numbers, three pictures of the first seed: `NAME.png`, pooling
weights colored by the dominant prototype; `NAME_classes.png`, what each class
takes of each prototype; `NAME_hulls.png`. Figure 4 of Generalized Sum Pooling
and of XML; thesis, Figures 5.6 and 4.3.
"""

import base64
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from tqdm import tqdm

from keras_gsp.ops.normalization import unit_ball
from training.pictures.encoding import decoded_image
from training.pictures.palette import PROTOTYPES, picture
from training.pictures.pooling_weights import prototype_maps
from training.research.experiments.few_prototypes import (
    COLORS,
    NOTES,
    REGULARIZERS,
    FewPrototypesSettings,
    class_means,
    examined_subject_cells,
    known_and_examined,
    note_cells,
    noted,
    retrieval,
    short_names,
    train,
    untrained,
)
from training.research.experiments.synthetic_tokens import convex_hull
from training.research.report import (
    markdown_table,
    mean_and_deviation,
    run_experiment,
    spread,
)

MEASURES = {
    "map_at_r": "MAP@R",
    "evenness": "evenness",
    "class_distance": "class distance",
    "main_prototypes": "main prototypes",
    "shared_main": "classes that share their main prototype",
    "mass_on_subject": "mass on the subject",
    "active": "active prototypes of a class",
    "active_overlap": "overlap of active sets",
}
UNTRAINED = "untrained"
SHOWN_CLASSES = 16
"""Of the picture of classes."""
HULL_CLASSES = 6
IMAGE_CLASSES, IMAGES_OF_CLASS = 4, 2


@dataclass(frozen=True, kw_only=True)
class Settings(FewPrototypesSettings):
    """Data, training, and when a prototype is active."""

    active_share: float = 0.1
    """Of a class's pooled mass, in (0, 1 / num_prototypes]: every class has
    an active prototype then."""


def check_settings(settings: Settings) -> None:
    """Refuses what could not be measured or drawn.

    Raises:
        ValueError: fewer than 2 prototypes or more than there are colors, or
            a share with which a class may be left without prototypes.
    """
    count = settings.num_prototypes
    if not 2 <= count <= len(PROTOTYPES):
        raise ValueError(
            f"`num_prototypes` must be in [2, {len(PROTOTYPES)}], one color "
            f"each. Received: num_prototypes={count}."
        )
    if not 0.0 < settings.active_share <= 1.0 / count:
        raise ValueError(
            f"`active_share` must be in (0, 1 / num_prototypes = {1 / count:g}"
            f"]. Received: active_share={settings.active_share}."
        )


def dominated_mass(maps: Any) -> Any:
    """Share of each image's mass from where each prototype is dominant.

    Args:
        maps: (num_images, rows, columns, num_prototypes), each image's sum
            to 1.

    Returns:
        (num_images, num_prototypes), rows sum to 1.
    """
    is_dominant = np.eye(maps.shape[-1])[maps.argmax(axis=-1)]
    weights = maps.sum(axis=-1, keepdims=True)
    return np.sum(weights * is_dominant, axis=(1, 2))


def mass_on_subject(maps: Any, cells: Any) -> float:
    """Share of the mass from the cell of its canvas that shows the class.

    A place belongs to the cell that its center is in; the middle of an odd
    number of rows or columns to the lower or right one.

    Args:
        maps: (num_images, rows, columns, num_prototypes).
        cells: (num_images,), in [0, 4), as `subject_cells` counts them.
    """
    rows, columns = maps.shape[1:3]
    below = np.arange(rows) >= rows // 2
    right = np.arange(columns) >= columns // 2
    of_place = 2 * below[:, None] + right
    is_subject = of_place == np.asarray(cells)[:, None, None]
    return float(np.mean(np.sum(maps.sum(axis=-1) * is_subject, axis=(1, 2))))


def histogram_facts(histograms: Any) -> dict[str, float]:
    """How concentrated the classes' mean histograms are, and how different.

    Args:
        histograms: (num_classes, num_prototypes), rows sum to 1.
    """
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

    Args:
        active: (num_classes, num_prototypes), boolean.

    Returns:
        Means over classes and over pairs of classes.
    """
    from scipy.spatial.distance import pdist

    return {
        "active": np.mean(active.sum(axis=1)),
        "active_overlap": np.mean(1.0 - pdist(active, "jaccard")),
    }


def in_plane(prototypes: Any) -> tuple[Any, Any, float]:
    """The plane of the prototypes' first two principal components.

    Args:
        prototypes: (num_prototypes, size), 2 or more.

    Returns:
        Their mean (size,), the plane's axes (size, 2), and the share of the
        prototypes' variance that it holds.
    """
    mean = prototypes.mean(axis=0)
    _, lengths, axes = np.linalg.svd(prototypes - mean, full_matrices=False)
    squares = np.square(lengths)
    share = squares[:2].sum() / np.maximum(squares.sum(), 1e-12)
    return mean, axes[:2].T, float(share)


def measure(settings: Settings) -> dict:
    """Trains every method for every seed, measures maps and histograms."""
    check_settings(settings)
    known, examined = known_and_examined(settings)
    cells = examined_subject_cells(settings)
    rows: list[dict] = []
    panels: dict[str, dict] = {}
    for method in (UNTRAINED, *REGULARIZERS):
        runs: list[dict] = []
        notes: list[dict] = []
        for seed in tqdm(settings.seeds, desc=method):
            if method == UNTRAINED:
                encoder = untrained(settings, known, seed)
            else:
                encoder, note = train(settings, method, known, seed)
                notes.append(note)
            found = _examine(encoder, examined, cells, settings.active_share)
            runs.append(found[0])
            if method != UNTRAINED:
                panels.setdefault(method, found[1])
        rows.append({"method": method} | _over_seeds(runs) | noted(notes))
    return {
        "rows": rows,
        "first_seed": {
            "classes": short_names(examined)[:SHOWN_CLASSES],
            "images": [
                _png(examined.images[row]) for row in _shown(examined.labels)
            ],
            "panels": panels,
        },
    }


def _examine(encoder, images, cells, active_share):
    """The measures of one model, and what is drawn of it."""
    maps = prototype_maps(encoder, images.images)
    prototypes = np.asarray(unit_ball(encoder.get_layer("pooling").prototypes))
    mean, axes, plane_share = in_plane(prototypes)
    places = (prototypes - mean) @ axes
    histograms = class_means(maps.sum(axis=(1, 2)), images.labels)
    dominated = dominated_mass(maps)
    of_classes = class_means(dominated, images.labels)
    active = of_classes >= active_share
    facts = (
        {"map_at_r": retrieval(encoder, images)["map_at_r"]}
        | histogram_facts(histograms)
        | {
            "mass_on_subject": (
                None if cells is None else mass_on_subject(maps, cells)
            )
        }
        | active_facts(active)
    )
    shown = maps[_shown(images.labels)]
    points = dominated @ places
    return facts, {
        "histograms": histograms[:SHOWN_CLASSES],
        "dominated": of_classes[:SHOWN_CLASSES],
        "dominant": shown.argmax(axis=-1),
        "weights": shown.sum(axis=-1),
        "plane_share": plane_share,
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


def _png(image):
    """An image as text: a hundredth of its pixels written as numbers."""
    from PIL import Image

    contents = io.BytesIO()
    Image.fromarray(image).save(contents, "PNG")
    return base64.b64encode(contents.getvalue()).decode()


def _over_seeds(runs):
    joined = {}
    for name in MEASURES:
        values = [run[name] for run in runs if run[name] is not None]
        joined[name] = mean_and_deviation(values) if values else None
    return joined


def table(results: dict) -> str:
    """One row a measure, one column a method."""
    rows = results["rows"]
    lines = [
        [said]
        + [
            "none" if r[name] is None else spread(r[name], digits=3)
            for r in rows
        ]
        for name, said in MEASURES.items()
    ]
    notes = [note_cells(row) for row in rows]
    lines += [[name, *(n[i] for n in notes)] for i, name in enumerate(NOTES)]
    return markdown_table(["", *(row["method"] for row in rows)], lines)


def draw(path: Path, results: dict) -> None:
    """Draws maps, and beside that file what classes take, and hulls."""
    shown = results["first_seed"]
    _draw_maps(path, shown)
    _draw_classes(path.with_stem(f"{path.stem}_classes"), shown)
    _draw_hulls(path.with_stem(f"{path.stem}_hulls"), shown)


def _draw_maps(path, shown):
    """Images above their weights, colored by prototype, a row a method.

    A row's largest weight is opaque, no weight clear.
    """
    images = [decoded_image(base64.b64decode(text)) for text in shown["images"]]
    panels = shown["panels"]
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
            weights = np.array(panel["weights"])
            opacity = weights / weights.max()
            for axis, image, dominant, opaque in zip(
                row, images, panel["dominant"], opacity, strict=True
            ):
                _draw_map(axis, image, np.array(dominant), opaque)
        count = len(next(iter(panels.values()))["places"])
        _legend(axes[0, 0].figure, count, "dominant prototype")


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


def _legend(figure, count, title):
    from matplotlib.patches import Patch

    figure.legend(
        handles=[
            Patch(color=color, label=number)
            for number, color in enumerate(PROTOTYPES[:count])
        ],
        title=title,
        loc="outside lower center",
        ncols=count,
    )


def _draw_classes(path, shown):
    """Stacked bars: histograms above, dominated mass below."""
    panels, classes = shown["panels"], shown["classes"]
    size = (5.0 * len(panels) + 1.0, 7.0)
    with picture(path, 2, len(panels), figsize=size, sharey=True) as axes:
        for column, (method, panel) in zip(axes.T, panels.items(), strict=True):
            column[0].set_title(method, color=COLORS[method])
            for axis, kind in zip(
                column, ("histograms", "dominated"), strict=True
            ):
                shares = np.array(panel[kind])
                floors = np.cumsum(shares, axis=1) - shares
                for floor, share, color in zip(
                    floors.T, shares.T, PROTOTYPES, strict=False
                ):
                    axis.bar(range(len(share)), share, 0.85, floor, color=color)
                axis.set_xticks(range(len(classes)), classes)
            column[1].set_xlabel("class looked at")
        axes[0, 0].set_ylabel("mean histogram")
        axes[1, 0].set_ylabel("mass by dominant prototype")
        _legend(axes[0, 0].figure, shares.shape[1], "prototype")


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

    places = np.array(panel["places"])
    for number, (active, points) in enumerate(
        zip(panel["active"], panel["points"], strict=True)
    ):
        color = PROTOTYPES[number]
        axis.fill(
            *convex_hull(places[np.array(active)]).T,
            facecolor=to_rgba(color, 0.08),
            edgecolor=color,
            # Hulls of the same prototypes lie inside one another.
            lw=2.0 + 2.0 * (len(panel["active"]) - 1 - number),
            joinstyle="round",
        )
        axis.plot(
            *np.array(points).T, "o", ms=5, color=color, label=classes[number]
        )
    axis.plot(*places.T, "D", ms=8, color="white", mec="black", mew=1.5)
    for number, (place, aside) in enumerate(
        zip(places, 14.0 * _away_from_others(places), strict=True)
    ):
        axis.annotate(
            str(number),
            place,
            aside,
            textcoords="offset points",
            ha="center",
            va="center",
            bbox={"boxstyle": "circle,pad=0.05", "fc": (1, 1, 1, 0.6), "lw": 0},
        )
    axis.margins(0.12)


def _away_from_others(places):
    """Directions of length 1 in which numbers do not meet, near ones first."""
    between = places[:, None] - places
    distances = np.linalg.norm(between, axis=-1, keepdims=True)
    pushed = np.sum(between / np.maximum(distances, 1e-6) ** 3, axis=1)
    lengths = np.linalg.norm(pushed, axis=1, keepdims=True)
    return pushed / np.maximum(lengths, 1e-6)


def main(arguments: list[str] | None = None) -> None:
    """Runs the experiment."""
    settings = tyro.cli(Settings, description=__doc__, args=arguments)
    run_experiment("dominant_prototypes", settings, measure, draw, table)


if __name__ == "__main__":
    main()
