"""Exact nearest neighbors in blocks of NumPy products."""

from collections.abc import Iterable

import numpy as np

# Candidates kept beyond k: products rank them up to rounding, exact distances
# then put them in order.
SPARE_CANDIDATES = 16
# A block has a multiple of this many rows. BLAS multiplies several rows at once
# and the last few one by one, which rounds differently: equal rows would get
# different products.
ROWS_ALIKE = 64
# Queries of one product, and numbers of one product (16 MB) or of the vectors
# compared at once (64 MB).
QUERY_ROWS = 512
PRODUCT_NUMBERS = 2**22
VECTOR_NUMBERS = 2**24
# Position of no row, after all others.
NOWHERE = np.iinfo("int64").max


def block_rows(num_queries: int) -> int:
    """Rows of the gallery to compare with that many queries at once."""
    rows = PRODUCT_NUMBERS // min(num_queries, QUERY_ROWS)
    return min(rows, 2**16) // ROWS_ALIKE * ROWS_ALIKE


def rows_alike(
    rows: np.ndarray, half_squares: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Pads to a multiple of `ROWS_ALIKE` rows, infinitely far away."""
    added = -len(rows) % ROWS_ALIKE
    if not added:  # Padding by nothing would copy them.
        return rows, half_squares
    return (
        np.pad(rows, ((0, added), (0, 0))),
        np.pad(half_squares, (0, added), constant_values=np.inf),
    )


def nearest_rows(
    queries: np.ndarray,
    blocks: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]],
    num_kept: int,
) -> np.ndarray:
    """Returns the positions of the nearest rows, up to rounding.

    `|q - r|^2 = |q|^2 - 2 (q.r - |r|^2 / 2)`: one product ranks the rows.
    `blocks` are rows, half their squared lengths, and their positions, which
    rise. Of equally near rows the lower position comes first; -1 where there
    are no more: (queries, num_kept), int64.
    """
    shape = len(queries), num_kept
    nearness = np.full(shape, -np.inf, "float32")
    places = np.full(shape, NOWHERE)
    for rows, half_squares, positions in blocks:
        rows, half_squares = rows_alike(rows, half_squares)
        for start in range(0, len(queries), QUERY_ROWS):
            some = slice(start, start + QUERY_ROWS)
            found = queries[some] @ rows.T
            found -= half_squares
            _keep_best(found, positions, nearness[some], places[some])
    return np.where(places == NOWHERE, -1, places)


def _keep_best(found, positions, nearness, places):
    """Merges the nearness of a block into the best so far, in place."""
    num_kept = nearness.shape[1]
    # Among equals, rows of earlier blocks come first.
    bound = nearness[:, -1:]
    if found.shape[1] > num_kept and bound.min() == -np.inf:
        last = found.shape[1] - num_kept
        in_block = np.partition(found, last, axis=1)[:, last, None]
        in_block = np.nextafter(in_block, np.float32(-np.inf))
        bound = np.maximum(bound, in_block)
    queries, columns = np.nonzero(found > bound)
    if not len(queries):
        return
    counts = np.bincount(queries, minlength=len(found))
    firsts = np.cumsum(counts) - counts
    ranks = num_kept + np.arange(len(queries)) - firsts[queries]
    width = num_kept + counts.max()
    both = np.full((len(found), width), -np.inf, "float32")
    both[:, :num_kept] = nearness
    both[queries, ranks] = found[queries, columns]
    where = np.full(both.shape, NOWHERE)
    where[:, :num_kept] = places
    where[queries, ranks] = positions[columns]
    # Columns are in the order of positions wherever values are equal.
    order = np.argsort(-both, axis=1, kind="stable")[:, :num_kept]
    nearness[:] = np.take_along_axis(both, order, axis=1)
    places[:] = np.take_along_axis(where, order, axis=1)


def ordered_exactly(
    queries: np.ndarray,
    vectors: np.ndarray,
    indices: np.ndarray,
    excluded: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Orders candidates by exact distance, then by index.

    `vectors` (queries, candidates, size) are those of `indices`, -1 for none;
    `excluded` is one index to leave out for each query. Returns distances and
    indices, infinity and -1 for none.
    """
    indices = np.where(indices == excluded[:, None], -1, indices)
    differences = vectors - queries[:, None, :]
    squares = np.einsum("qcs,qcs->qc", differences, differences)
    distances = np.where(indices < 0, np.float32(np.inf), np.sqrt(squares))
    order = np.lexsort((indices, distances), axis=1)
    return (
        np.take_along_axis(distances, order, axis=1),
        np.take_along_axis(indices, order, axis=1),
    )
