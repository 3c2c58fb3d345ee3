"""Find where a search fails: queries, classes, and why neighbors are near."""

from typing import Any

import numpy as np

from training.browsing.page_parts import encoded_map, strongest
from training.pictures.pooling_weights import (
    full_weight,
    pooling_layer,
    pooling_weights,
)
from training.reports.searched import Searched

BATCH = 64
"""Pairs that are explained at once."""
QUERIES = 8
"""Queries in each list."""
FIRST = 3
"""Good queries, and bad ones, that the page shows first."""
SHOWN = 7
"""Neighbors beside each query."""
EXPLAINED = 4
"""Nearest neighbors that are explained."""


def query_lists(shown: dict[str, Searched]) -> list[dict[str, Any]]:
    """Chooses good and bad queries of the last search, one of each class.

    An earlier search is the baseline: then there are lists of the queries that
    gain and that lose most. Returns dicts with `title` and `parts`, pairs of a
    heading and the positions of images.
    """
    *before, name = shown
    one, labels = shown[name], shown[name].images.labels
    scores = one.by_query["map_at_r"]
    gains = np.bincount(labels)[labels][: len(scores)]
    if before:
        gains = scores - shown[before[0]].by_query["map_at_r"]
    # Ties: the mistake with the nearest neighbor, the success that gains
    # most, or is in the largest class.
    worst = _one_of_each_class(one, np.lexsort((one.distances[:, 0], scores)))
    best = _one_of_each_class(one, np.lexsort((-gains, -scores)))
    bad = [query for query in worst if query not in best[:FIRST]][:FIRST]
    lists = [
        (
            f"{FIRST} good, {FIRST} bad",
            [("Found well", best[:FIRST]), ("Found badly", bad)],
        ),
        ("best", [("", best)]),
        ("worst", [("", worst)]),
    ]
    for title, order in (("gain", -gains), ("loss", gains)) if before else ():
        most = _one_of_each_class(one, np.argsort(order))
        lists.append((f"largest {title} over {before[0]}", [("", most)]))
    return [{"title": title, "parts": parts} for title, parts in lists]


def _one_of_each_class(one, order):
    scores = one.by_query["map_at_r"]
    chosen: dict[int, int] = {}
    for query in order.tolist():
        if not np.isnan(scores[query]):
            chosen.setdefault(int(one.images.labels[query]), query)
    return list(chosen.values())[:QUERIES]


def shown_search(
    searched: Searched, queries: list[int], notes: list[str]
) -> dict[str, Any]:
    """Returns neighbors, pooling weights and explanations for the page.

    A dict with `queries`; `weights`, image -> map; `parts`,
    "image:prototype" -> map; and `shape`, rows and columns of a map, or None
    without maps. `notes` gets a sentence where nothing can be explained.
    """
    answers, pairs = {}, []
    for query in queries:
        neighbors = searched.neighbors[query, :SHOWN].tolist()
        pairs += [(query, other) for other in neighbors[:EXPLAINED]]
        score = float(searched.by_query["map_at_r"][query])
        distances = np.round(searched.distances[query, :SHOWN], 3)
        answers[query] = {
            "score": None if np.isnan(score) else round(score, 4),
            "neighbors": neighbors,
            "distances": distances.tolist(),
            "right": searched.is_right[query, :SHOWN].tolist(),
        }
    shown: dict[str, Any] = {"queries": answers, "weights": {}, "parts": {}}
    shown["shape"] = None
    pooling = pooling_layer(searched.encoder)
    if pooling is None:
        notes.append("Its pooling has no weights to show over images.")
        return shown
    images = sorted(
        {*queries}.union(*(a["neighbors"] for a in answers.values()))
    )
    weights = pooling_weights(searched.encoder, searched.images.pixels(images))
    if weights.ndim != 3:
        return shown
    is_learned = getattr(pooling, "learn_ratio", False)
    ratio = None if is_learned else getattr(pooling, "transport_ratio", None)
    largest = full_weight(weights, ratio)
    shown["shape"] = list(weights.shape[1:])
    shown["weights"] = {
        image: encoded_map(one, largest)
        for image, one in zip(images, weights, strict=True)
    }
    try:
        _explain(searched, pairs, shown, largest)
    except ValueError as error:
        notes.append(f"Similarities are not explained: {error}")
    return shown


def _explain(searched, pairs, shown, largest):
    """Adds each pair's similarity, split by prototype."""
    import keras_gsp as gsp

    for start in range(0, len(pairs), BATCH):
        some = pairs[start : start + BATCH]
        found = gsp.retrieval.explain(
            searched.encoder,
            searched.images.pixels([query for query, _ in some]),
            searched.images.pixels([neighbor for _, neighbor in some]),
        )
        for row, (query, neighbor) in enumerate(some):
            shares = found.contributions[row]
            order = strongest(shares)
            shown["queries"][query].setdefault("why", []).append(
                {
                    "similarity": round(float(found.similarity[row]), 4),
                    "prototypes": order,
                    "shares": [round(float(shares[p]), 4) for p in order],
                }
            )
            for image, maps in (
                (query, found.query_maps[row]),
                (neighbor, found.neighbor_maps[row]),
            ):
                for prototype in order:
                    shown["parts"][f"{image}:{prototype}"] = encoded_map(
                        maps[..., prototype], largest
                    )


def class_rows(searched: list[Searched]) -> list[dict[str, Any]]:
    """Computes the scores of each class that has queries.

    Dicts with `name`, `images`, `scores` (for each search measure -> mean,
    None without a positive) and `mistaken`, the class most often found in its
    place by the last search and its share, or None.
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
        rows.append(
            {
                "name": images.class_names[label],
                "images": int(images.class_sizes[label]),
                "scores": [_means(one, queries == label) for one in searched],
                "mistaken": mistaken,
            }
        )
    return rows


def _means(searched, chosen):
    """Mean of each measure over the queries with a positive, or None."""
    found = {}
    for measure in ("map_at_r", "precision_at_1"):
        values = searched.by_query[measure][chosen]
        values = values[~np.isnan(values)]
        found[measure] = float(values.mean()) if len(values) else None
    return found
