"""Find where a search succeeds and fails: queries and classes."""

from typing import Any

import numpy as np

from training.browsing.page_parts import encoded_map
from training.pictures.pooling_weights import pooling_layer, pooling_weights
from training.reports.searched import Searched

QUERIES = 3  # good ones, and bad ones, that the page shows
NEIGHBORS = 7  # beside each query
MAX_CLASSES = 200  # in the table of classes


def chosen_queries(shown: list[Searched]) -> dict[str, list[int]]:
    """Chooses good and bad queries of the last search, one of each class.

    Ties: the success that gains most over the first search, the baseline, or
    is in the largest class; the mistake with the nearest neighbor.
    """
    *before, one = shown
    labels, scores = one.images.labels, one.by_query["map_at_r"]
    gains = np.bincount(labels)[labels][: len(scores)]
    if before:
        gains = scores - before[0].by_query["map_at_r"]
    best = _one_of_each_class(one, np.lexsort((-gains, -scores)))[:QUERIES]
    worst = _one_of_each_class(one, np.lexsort((one.distances[:, 0], scores)))
    bad = [query for query in worst if query not in best]
    return {"Found well": best, "Found badly": bad[:QUERIES]}


def _one_of_each_class(one, order):
    chosen: dict[int, int] = {}
    for query in order.tolist():
        if not np.isnan(one.by_query["map_at_r"][query]):
            chosen.setdefault(int(one.images.labels[query]), query)
    return list(chosen.values())


def shown_search(
    searched: Searched, queries: list[int], notes: list[str]
) -> dict[str, Any]:
    """Returns neighbors and pooling weights for the page.

    A dict with `queries`, `weights`, image -> map, and `shape`, rows and
    columns of a map, or None without maps, of which `notes` gets a sentence.
    """
    answers, labels = {}, searched.images.labels
    for query in queries:
        neighbors = searched.neighbors[query, :NEIGHBORS]
        score = float(searched.by_query["map_at_r"][query])
        distances = np.round(searched.distances[query, :NEIGHBORS], 3)
        answers[query] = {
            "score": None if np.isnan(score) else round(score, 4),
            "neighbors": neighbors.tolist(),
            "distances": distances.tolist(),
            "right": (labels[neighbors] == labels[query]).tolist(),
        }
    shown: dict[str, Any] = {"queries": answers, "weights": {}, "shape": None}
    if pooling_layer(searched.encoder) is None:
        notes.append("Its pooling has no weights to show over images.")
        return shown
    images = sorted(
        {*queries}.union(*(a["neighbors"] for a in answers.values()))
    )
    weights = pooling_weights(searched.encoder, searched.images.pixels(images))
    if weights.ndim == 3:
        shown["shape"] = list(weights.shape[1:])
        maps = [encoded_map(one, weights.max()) for one in weights]
        shown["weights"] = dict(zip(images, maps, strict=True))
    return shown


def class_rows(searched: list[Searched]) -> list[dict[str, Any]]:
    """Scores each class that has queries, the worst of the last search first.

    Dicts with `name`, `images`, `scores` (MAP@R of each search, None without
    a positive) and `mistaken`, the class most often found in its place by the
    last search and its share, or None.
    """
    last = searched[-1]
    labels, images = last.images.labels, last.images.images
    queries = labels[: last.images.num_queries]
    rows = []
    for label in np.unique(queries).tolist():
        found = labels[last.neighbors[queries == label]].ravel()
        counts = np.bincount(found[found != label], minlength=1)
        mistaken = None
        if counts.any():
            name = images.class_names[int(np.argmax(counts))]
            mistaken = {"name": name, "share": counts.max() / len(found)}
        scores: list = []
        for one in searched:
            own = one.by_query["map_at_r"][queries == label]
            own = own[~np.isnan(own)]
            scores.append(float(own.mean()) if len(own) else None)
        row = {"name": images.class_names[label], "scores": scores}
        row |= {"images": int(images.class_sizes[label]), "mistaken": mistaken}
        rows.append(row)
    rows.sort(key=lambda row: row["scores"][-1] or 0.0)
    return rows[:MAX_CLASSES]
