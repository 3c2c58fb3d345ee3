"""Queries worth a look, their neighbors, and why these are near."""

from typing import Any

import numpy as np

from training.browsing.page_parts import encoded_map
from training.reports.pooling_maps import (
    explained_pairs,
    full_weight,
    weights_of_images,
)
from training.reports.searched import Searched

QUERIES = 8
"""Queries of each kind."""
SHOWN = 8
"""Neighbors beside each query."""
EXPLAINED = 4
"""Nearest neighbors that are explained."""
CONTRIBUTIONS = 6
"""Prototypes named in an explanation."""
MEASURE = "map_at_r"


def chosen_queries(searched: dict[str, Searched]) -> list[dict[str, Any]]:
    """Chooses the worst and the best queries, one of a class each.

    Args:
        searched: Run's name -> its search, all of the same images.

    Returns:
        Dicts with `title` and `queries`, positions of images: for each run
        its worst and best; for each further run where it is ahead of the
        first and where behind.
    """
    lists = []
    first = next(iter(searched))
    for name, one in searched.items():
        scores, nearest = one.by_query[MEASURE], one.distances[:, 0]
        many = len(searched) > 1
        of_run = f" of {name}" if many else ""
        # Of equally bad ones, the surest mistake; of good ones, the hardest.
        sizes = np.bincount(one.images.labels)[one.images.labels]
        sizes = sizes[: len(scores)]
        lists += [
            (f"Worst{of_run}", one, np.lexsort((nearest, scores))),
            (f"Best{of_run}", one, np.lexsort((-sizes, -scores))),
        ]
        if name != first:
            gain = scores - searched[first].by_query[MEASURE]
            lists += [
                (f"{name} ahead of {first}", one, np.argsort(-gain)),
                (f"{first} ahead of {name}", one, np.argsort(gain)),
            ]
    return [
        {"title": title, "queries": _one_of_a_class(one, order)}
        for title, one, order in lists
    ]


def shown_search(
    searched: Searched, queries: list[int], notes: list[str]
) -> dict[str, Any]:
    """The neighbors of some queries, with weights and explanations.

    Args:
        searched: The search of a run.
        queries: Positions of the queries.
        notes: Gets a sentence where there is nothing to explain.

    Returns:
        Dict with `queries`, `weights` (image -> map) and `parts` (image and
        prototype -> map), the maps as text, and `shape`, rows and columns of
        a map, or None.
    """
    answers, pairs = {}, []
    for query in queries:
        neighbors = searched.neighbors[query, :SHOWN].tolist()
        pairs += [(query, other) for other in neighbors[:EXPLAINED]]
        answers[query] = {
            "score": _number(searched.by_query[MEASURE][query]),
            "neighbors": neighbors,
            "distances": np.round(
                searched.distances[query, :SHOWN], 3
            ).tolist(),
            "right": searched.is_right[query, :SHOWN].tolist(),
        }
    shown: dict[str, Any] = {"queries": answers, "weights": {}, "parts": {}}
    shown["shape"] = None
    involved = sorted(
        set(queries).union(*(a["neighbors"] for a in answers.values()))
    )
    weights = weights_of_images(searched.encoder, searched.images, involved)
    if weights is None:
        notes.append(
            "Its pooling has no weights, so neighbors are shown without "
            "overlays."
        )
        return shown
    if weights.ndim != 3:
        return shown
    shown["shape"] = list(weights.shape[1:])
    largest = full_weight(searched.encoder, weights)
    shown["weights"] = {
        image: encoded_map(one, largest)
        for image, one in zip(involved, weights, strict=True)
    }
    try:
        _explain(searched, pairs, shown, largest)
    except ValueError as error:
        notes.append(f"Similarities are not explained: {error}")
    return shown


def _explain(searched, pairs, shown, largest):
    for (query, neighbor), shares in explained_pairs(searched, pairs):
        order = np.argsort(-np.abs(shares["contributions"]))[:CONTRIBUTIONS]
        shown["queries"][query].setdefault("why", []).append(
            {
                "similarity": round(float(shares["similarity"]), 4),
                "prototypes": order.tolist(),
                "shares": [
                    round(float(v), 4) for v in shares["contributions"][order]
                ],
            }
        )
        for image, maps in (
            (query, shares["query_maps"]),
            (neighbor, shares["neighbor_maps"]),
        ):
            for prototype in order.tolist():
                # On the scale of all weights, or each part would look alike.
                shown["parts"][f"{image}:{prototype}"] = encoded_map(
                    maps[..., prototype], largest
                )


def _one_of_a_class(searched, order):
    scores, labels = searched.by_query[MEASURE], searched.images.labels
    chosen, seen = [], set()
    for query in order.tolist():
        if np.isnan(scores[query]) or labels[query] in seen:
            continue
        seen.add(labels[query])
        chosen.append(query)
        if len(chosen) == QUERIES:
            break
    return chosen


def _number(value):
    return None if np.isnan(value) else round(float(value), 4)
