"""Find images that are nearly the same picture."""

from typing import Any

import numpy as np

SIDE = 16
"""Images are compared at this size, pixels."""
DIFFERENCE = 8.0
"""Largest root mean squared difference, gray levels out of 255."""
PAIRS = 24
"""Pairs that are shown."""


def near_duplicates(small: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Compares each image with the nearest other image in pixels.

    Args:
        small: `(images, SIDE, SIDE, 3)`, uint8.
        labels: `(images,)`, class of each image.

    Returns:
        Dict with `count`, the number of pairs; `across`, the number of pairs
        of two classes; and `pairs`, those of two classes first, then by
        difference: dicts of `images`, `difference` and `is_same_class`.
    """
    import keras_gsp as gsp

    flat = small.reshape(len(small), -1).astype("float32")
    nearest = gsp.retrieval.ExactIndex(flat).search(
        flat, 1, exclude_ids=np.arange(len(flat))
    )
    others = np.asarray(nearest.ids)[:, 0]
    differences = np.asarray(nearest.distances)[:, 0] / np.sqrt(flat.shape[1])
    found = {}
    for one in np.flatnonzero(differences <= DIFFERENCE).tolist():
        pair = tuple(sorted((one, int(others[one]))))
        found[pair] = {
            "images": list(pair),
            "difference": round(float(differences[one]), 2),
            "is_same_class": bool(labels[pair[0]] == labels[pair[1]]),
        }
    pairs = sorted(
        found.values(),
        key=lambda pair: (pair["is_same_class"], pair["difference"]),
    )
    across = sum(not pair["is_same_class"] for pair in pairs)
    return {"count": len(pairs), "across": across, "pairs": pairs[:PAIRS]}
