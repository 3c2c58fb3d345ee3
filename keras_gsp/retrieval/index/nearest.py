"""Exact nearest neighbours on tensors, in Python or inside a saved graph."""

from keras import ops

# Candidates kept beyond k: the product ranks them to rounding error, the
# differences between vectors then put them into their exact order.
SPARE_CANDIDATES = 16


def nearest_candidates(queries, rows, half_squares, num_candidates, best=None):
    """Keeps the rows nearest to each query, of these and of earlier rows.

    `|q - r|^2 = |q|^2 - 2 (q.r - |r|^2 / 2)`: one product ranks the rows.
    Among equals the lower index comes first, provided that rows come in
    order.

    Args:
        queries: (queries, size).
        rows: (rows, size), the next shard of the gallery.
        half_squares: (rows,), half their squared lengths.
        num_candidates: how many to keep, at most the rows seen so far.
        best: what this function returned for the rows before, and their
            number; `None` for the first shard.

    Returns:
        Nearness (queries, candidates) and indices (queries, candidates),
        int32.
    """
    nearness = ops.matmul(queries, ops.transpose(rows)) - half_squares
    kept = min(num_candidates, rows.shape[0])
    nearness, indices = ops.top_k(nearness, kept)
    if best is None:
        return nearness, ops.cast(indices, "int32")
    (best_nearness, best_indices), num_before = best
    nearness = ops.concatenate([best_nearness, nearness], axis=1)
    indices = ops.cast(indices, "int32") + num_before
    indices = ops.concatenate([best_indices, indices], axis=1)
    nearness, order = ops.top_k(
        nearness, min(num_candidates, nearness.shape[1])
    )
    return nearness, ops.take_along_axis(indices, order, axis=1)


def exact_order(queries, vectors, indices):
    """Orders candidates by their distance, then by index.

    Distances come from differences, not from the product: they are exact to
    rounding error however close two vectors are, and 0 for equal ones.

    Args:
        queries: (queries, size).
        vectors: (queries, candidates, size), what the indices point at.
        indices: (queries, candidates), int32; -1 sorts last.

    Returns:
        Distances (queries, candidates) in rising order, and their indices.
    """
    distances = ops.sqrt(
        ops.sum(ops.square(vectors - queries[:, None, :]), axis=-1)
    )
    by_index = ops.argsort(indices, axis=1)
    indices = ops.take_along_axis(indices, by_index, axis=1)
    distances = ops.take_along_axis(distances, by_index, axis=1)
    distances = ops.where(indices < 0, float("inf"), distances)
    # top_k gives the lower position first among equals, here the lower index.
    nearness, order = ops.top_k(-distances, indices.shape[1])
    return -nearness, ops.take_along_axis(indices, order, axis=1)
