"""Exact nearest neighbors on tensors, in Python or inside a saved graph."""

from typing import Any

import numpy as np
from keras import ops

# Candidates kept beyond k: the product ranks them to rounding error, the
# differences between vectors then put them into their exact order.
SPARE_CANDIDATES = 16
# Numbers of which only the largest takes part in a first choice.
GROUP = 32
# Rows of a shard are a multiple of this.
ROWS_ALIKE = 64


def rows_alike(
    rows: np.ndarray, half_squares: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Fills a shard up with rows that are near to nothing.

    A processor multiplies several rows at once and the last few one by one,
    which rounds them in another way: of equal rows some would be nearer than
    the others, whatever their order.

    Args:
        rows: (rows, size).
        half_squares: (rows,), half their squared lengths.

    Returns:
        Both with a multiple of `ROWS_ALIKE` rows; the added ones are 0 and as
        far away as infinity.
    """
    added = -len(rows) % ROWS_ALIKE
    return (
        np.pad(rows, ((0, added), (0, 0))),
        np.pad(half_squares, (0, added), constant_values=np.inf),
    )


def nearest_candidates(
    queries: Any,
    rows: Any,
    half_squares: Any,
    num_candidates: int,
    best: Any = None,
) -> tuple[Any, Any]:
    """Keeps the rows nearest to each query, of these and of earlier rows.

    `|q - r|^2 = |q|^2 - 2 (q.r - |r|^2 / 2)`: one product ranks the rows.
    Among equals the lower index comes first, provided that rows come in
    order and are `rows_alike`.

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
    nearness, indices = largest(nearness, kept)
    if best is None:
        return nearness, indices
    (best_nearness, best_indices), num_before = best
    nearness = ops.concatenate([best_nearness, nearness], axis=1)
    indices = indices + num_before
    indices = ops.concatenate([best_indices, indices], axis=1)
    nearness, order = ops.top_k(
        nearness, min(num_candidates, nearness.shape[1])
    )
    return nearness, ops.take_along_axis(indices, order, axis=1)


def largest(values: Any, k: int) -> tuple[Any, Any]:
    """Returns the k largest of each row, like `top_k` and much faster.

    The k largest numbers are in the k groups of the largest maxima; a maximum
    costs far less than a place in a heap.

    Args:
        values: (rows, columns), the columns known beforehand.
        k: how many, at most the columns.

    Returns:
        Values (rows, k) in falling order and their columns, int32; among
        equals the lower column comes first.
    """
    columns = values.shape[1]
    num_groups = columns // GROUP
    if num_groups < 2 * k:
        values, order = ops.top_k(values, k)
        return values, ops.cast(order, "int32")
    head = values[:, : num_groups * GROUP] if columns % GROUP else values
    groups = ops.reshape(head, (-1, GROUP))
    maxima = ops.reshape(ops.max(groups, axis=1), (-1, num_groups))
    chosen = ops.cast(ops.sort(ops.top_k(maxima, k)[1], axis=1), "int32")
    num_rows = ops.shape(maxima)[0]
    firsts = ops.arange(num_rows, dtype="int32")[:, None] * num_groups
    inside = ops.reshape(
        ops.take(groups, chosen + firsts, axis=0), (-1, k * GROUP)
    )
    places = ops.repeat(chosen * GROUP, GROUP, axis=1)
    places = places + ops.tile(ops.arange(GROUP, dtype="int32"), (k,))
    if columns % GROUP:
        tail = ops.arange(num_groups * GROUP, columns, dtype="int32")
        tail = ops.broadcast_to(tail, (num_rows, columns % GROUP))
        inside = ops.concatenate([inside, values[:, -(columns % GROUP) :]], 1)
        places = ops.concatenate([places, tail], axis=1)
    values, order = ops.top_k(inside, k)
    order = ops.cast(order, "int32")
    return values, ops.take_along_axis(places, order, axis=1)


def exact_order(queries: Any, vectors: Any, indices: Any) -> tuple[Any, Any]:
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


def ordered_exactly(
    queries: np.ndarray,
    vectors: np.ndarray,
    indices: np.ndarray,
    excluded: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Orders what a search found by true distance, then by index, in NumPy.

    Args:
        queries: (queries, size), float32.
        vectors: (queries, found, size), float32, what the indices point at.
        indices: (queries, found), integers, -1 for none.
        excluded: (queries,), indices to leave out, or `None`.

    Returns:
        Distances (queries, found) in rising order, infinity for none, and
        their indices, -1 for none.
    """
    if excluded is not None:
        indices = np.where(indices == excluded[:, None], -1, indices)
    differences = vectors - queries[:, None, :]
    squares = np.einsum("qfs,qfs->qf", differences, differences)
    distances = np.where(indices < 0, np.float32(np.inf), np.sqrt(squares))
    order = np.lexsort((indices, distances), axis=1)
    return (
        np.take_along_axis(distances, order, axis=1),
        np.take_along_axis(indices, order, axis=1),
    )
