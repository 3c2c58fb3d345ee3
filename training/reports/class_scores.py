"""Scores of each class, and which classes are taken for each other."""

from typing import Any

import numpy as np

from training.reports.searched import Searched

CONFUSED = 24
"""Classes in the picture of confusions."""
PAIRS = 20
"""Rows in the list of the most confused pairs."""


def confusion(searched: Searched) -> np.ndarray:
    """(classes, classes): share of a class's neighbors that is of each.

    A row is that of the queries' class and sums to 1; zeros for a class
    without queries.
    """
    labels = searched.images.labels
    size = searched.images.images.num_classes
    queries = labels[: len(searched.neighbors)]
    counts = np.zeros((size, size))
    np.add.at(counts, (queries[:, None], labels[searched.neighbors]), 1)
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)


def class_rows(searched: list[Searched]) -> list[dict[str, Any]]:
    """One row for each class that searches.

    Args:
        searched: Searches of several runs on the same images.

    Returns:
        Dicts with `name`, `images`, `scores` (a dict for each run, measure
        -> mean, None without a positive) and `mistaken`, for each run the
        class most often found in its place and its share, or None.
    """
    images = searched[0].images
    queries = images.labels[: images.num_queries]
    tables = [confusion(one) for one in searched]
    sizes = np.bincount(images.labels, minlength=images.images.num_classes)
    rows = []
    for label in np.unique(queries):
        chosen = queries == label
        rows.append(
            {
                "name": images.images.class_names[label],
                "images": int(sizes[label]),
                "scores": [
                    {
                        measure: _mean(one.by_query[measure][chosen])
                        for measure in ("map_at_r", "precision_at_1")
                    }
                    for one in searched
                ],
                "mistaken": [
                    _most_mistaken(table[label], label, images)
                    for table in tables
                ],
            }
        )
    return rows


def confused_pairs(searched: Searched) -> list[dict[str, Any]]:
    """The most confused pairs of classes, both directions together.

    Returns:
        Dicts with `classes` (two labels), `share` of the neighbors of both
        that is of the other, and `images`, the first of each.
    """
    table = confusion(searched)
    both = np.triu((table + table.T) / 2, k=1)
    order = np.argsort(-both, axis=None, kind="stable")[:PAIRS]
    labels = searched.images.labels
    pairs = []
    for one, other in zip(*np.unravel_index(order, both.shape), strict=True):
        if both[one, other] == 0:
            break
        pairs.append(
            {
                "classes": [int(one), int(other)],
                "share": float(both[one, other]),
                "images": [
                    int(np.argmax(labels == label)) for label in (one, other)
                ],
            }
        )
    return pairs


def confusion_picture(searched: Searched) -> dict[str, Any]:
    """The part of the confusions with the most confused classes in it.

    Returns:
        Dict with `classes`, labels, and `shares`, (classes, classes).
    """
    chosen: list[int] = []
    for pair in confused_pairs(searched):
        for label in pair["classes"]:
            if label not in chosen and len(chosen) < CONFUSED:
                chosen.append(label)
    table = confusion(searched)[np.ix_(chosen, chosen)]
    return {"classes": chosen, "shares": np.round(table, 3).tolist()}


def _mean(values):
    values = values[~np.isnan(values)]
    return float(values.mean()) if len(values) else None


def _most_mistaken(shares, label, images):
    shares = shares.copy()
    shares[label] = 0
    if not shares.any():
        return None
    other = int(np.argmax(shares))
    return {
        "name": images.images.class_names[other],
        "share": float(shares[other]),
    }
