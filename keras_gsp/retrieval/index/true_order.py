"""The true order of what an approximate search found."""

import numpy as np


def ordered_exactly(queries, rows, indices, distances, excluded=None):
    """Orders what ScaNN found by true distance, then by index.

    Args:
        queries: (queries, size).
        rows: (items, size), the gallery.
        indices: (queries, found), integers; lists of different lengths fit.
        distances: (queries, found), NaN where nothing was found.
        excluded: (queries,), positions to leave out, or `None`.

    Returns:
        Indices (queries, found), -1 for none, and distances (queries, found).
    """
    indices, distances = np.asarray(indices), np.asarray(distances)
    indices = np.where(np.isnan(distances), -1, indices.astype("int64"))
    if excluded is not None:
        indices = np.where(indices == excluded[:, None], -1, indices)
    exact = np.linalg.norm(
        rows[np.maximum(indices, 0)] - queries[:, None, :], axis=-1
    )
    exact = np.where(indices < 0, np.inf, exact)
    order = np.lexsort((indices, exact), axis=1)
    return (
        np.take_along_axis(indices, order, axis=1),
        np.take_along_axis(exact, order, axis=1),
    )
