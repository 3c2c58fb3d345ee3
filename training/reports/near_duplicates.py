"""Images that are nearly the same picture."""

from typing import Any

import numpy as np

SIDE = 16
"""Images are compared at this size, pixels."""
DIFFERENCE = 8.0
"""Root of the mean squared difference below which two are nearly the same,
gray levels out of 255."""
PAIRS = 24
"""Pairs that are shown."""


def near_duplicates(small: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Finds each image's nearest other image in pixels.

    Args:
        small: (images, SIDE, SIDE, 3), uint8.
        labels: (images,), class of each.

    Returns:
        Dict with `count` pairs found, of which `across` of two classes, and
        the `pairs` with the least difference: `images`, `difference` in gray
        levels and `is_same_class`.
    """
    import keras_gsp as gsp

    flat = small.reshape(len(small), -1).astype("float32")
    index = gsp.retrieval.ExactIndex(flat)
    positions = np.arange(len(flat))
    nearest = index.search(flat, 1, exclude_ids=positions)
    others = np.asarray(nearest.ids)[:, 0]
    differences = np.asarray(nearest.distances)[:, 0] / np.sqrt(flat.shape[1])
    found = {}
    for place in np.flatnonzero(differences <= DIFFERENCE):
        pair = tuple(sorted((int(place), int(others[place]))))
        found[pair] = float(differences[place])
    ordered = sorted(found.items(), key=lambda item: (item[1], item[0]))
    is_same = {pair: bool(labels[pair[0]] == labels[pair[1]]) for pair in found}
    # Two classes with one picture are the ones to look at first.
    ordered.sort(key=lambda item: is_same[item[0]])
    return {
        "count": len(found),
        "across": sum(not same for same in is_same.values()),
        "pairs": [
            {
                "images": list(pair),
                "difference": round(difference, 2),
                "is_same_class": is_same[pair],
            }
            for pair, difference in ordered[:PAIRS]
        ],
    }
