"""Draw where a search succeeds and fails; score each class."""

import io
from collections.abc import Sequence

import numpy as np

from training.pictures.framed_image import draw_image
from training.pictures.palette import BLACK, BLUE, VERMILION, picture
from training.pictures.pooling_weights import pooling_layer, pooling_weights
from training.reports.searched import Searched

QUERIES = 3  # good ones, and bad ones, that the page shows
NEIGHBORS = 6  # beside each query
MAX_CLASSES = 100  # in the table of classes
TILE = 1.4  # side of an image, inches


def chosen_queries(shown: Sequence[Searched]) -> dict[str, list[int]]:
    """Chooses good and bad queries of the last search, one of each class.

    Ties: the success that gains most over the first search, the baseline, or
    is in the largest class; the mistake with the nearest neighbor.
    """
    *before, last = shown
    labels, scores = last.images.labels, last.by_query["map_at_r"]
    gains = np.bincount(labels)[labels][: len(scores)]
    if before:
        gains = scores - before[0].by_query["map_at_r"]
    good = _of_each_class(last, np.lexsort((-gains, -scores)))[:QUERIES]
    worst = _of_each_class(last, np.lexsort((last.distances[:, 0], scores)))
    bad = [query for query in worst if query not in good]
    return {"Right first": good, "Wrong first": bad[:QUERIES]}


def _of_each_class(search, order):
    chosen: dict[int, int] = {}
    for query in order.tolist():
        if not np.isnan(search.by_query["map_at_r"][query]):
            chosen.setdefault(int(search.images.labels[query]), query)
    return list(chosen.values())


def draw_queries(searched: Searched, queries: Sequence[int]) -> io.BytesIO:
    """Draws queries and their neighbors, veiled where nothing is pooled.

    A solid frame is the query's class, a dashed one is another.
    """
    neighbors = searched.neighbors[queries, :NEIGHBORS]
    rows = np.concatenate([np.reshape(queries, (-1, 1)), neighbors], axis=1)
    images = sorted({*rows.ravel().tolist()})
    position = {image: place for place, image in enumerate(images)}
    pixels = searched.images.pixels(images).astype("uint8")
    weights = None
    if pooling_layer(searched.encoder) is not None:
        weights = pooling_weights(searched.encoder, pixels)
        weights = weights if weights.ndim == 3 else None
    labels, names = searched.images.labels, searched.images.images.class_names
    drawn = io.BytesIO()
    height, width = rows.shape
    size = (TILE * width, (TILE + 0.45) * height)
    with picture(drawn, height, width, figsize=size) as axes:
        for row, query in zip(axes, rows, strict=True):
            for rank, (axis, image) in enumerate(zip(row, query, strict=True)):
                is_right = labels[image] == labels[query[0]]
                title = names[labels[image]][:18]
                if rank:
                    distance = searched.distances[query[0], rank - 1]
                    title = f"{title}\n{distance:.2f}"
                draw_image(
                    axis,
                    pixels[position[image]],
                    None if weights is None else weights[position[image]],
                    title,
                    BLACK if not rank else BLUE if is_right else VERMILION,
                    3,
                    "-" if is_right else "--",
                )
    return drawn


def class_rows(searched: Sequence[Searched]) -> list[list[str]]:
    """Rows of a class, its images, each search's MAP@R, its confusion.

    The worst of the last search first. The confusion is the class most often
    returned in its place, and the share of neighbors that are of it.
    """
    last = searched[-1]
    labels, images = last.images.labels, last.images.images
    queries = labels[: last.images.num_queries]
    rows = []
    for label in np.unique(queries).tolist():
        neighbors = labels[last.neighbors[queries == label]].ravel()
        counts = np.bincount(neighbors[neighbors != label], minlength=1)
        confused = "–"
        if counts.any():
            name = images.class_names[int(np.argmax(counts))]
            confused = f"{name} ({counts.max() / len(neighbors):.0%})"
        scores = [s.by_query["map_at_r"][queries == label] for s in searched]
        if np.isnan(scores[-1]).all():
            continue
        means = [float(np.nanmean(score)) for score in scores]
        size = str(images.class_sizes[label])
        percents = [f"{100 * mean:.1f}" for mean in means]
        row = [images.class_names[label], size, *percents, confused]
        rows.append((means[-1], row))
    return [row for _, row in sorted(rows)][:MAX_CLASSES]
