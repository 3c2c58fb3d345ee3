"""Nearest rows on the host: blocks of products, and what passes a bound.

A product of 129 columns is the nearness itself: `q.r - |r|^2 / 2`, larger is
nearer. A block of it fits the last cache; only what is nearer than the best
so far leaves it, a few dozen numbers a query, as one integer each whose order
is the wanted one: nearness first, then the lower position. The work around
the product is shared between threads; NumPy lets them run.
"""

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

# A block of products, 17 MB. Not 4096: rows a power of two apart fall on the
# same places of a cache, and the product and the pass over it took a fifth
# longer.
BLOCK_ROWS = 4160
QUERY_ROWS = 1024
# At least so many groups of rows, and two for each of the k best, bound these
# from below in a first block.
GROUPS = 64
# So few that a product reads the gallery no more than once.
FEW_QUERIES = 8
# Below this many products a thread costs more than it brings.
THREAD_PRODUCTS = 2**18
NOTHING = np.iinfo("int64").max


def nearest_on_host(
    queries: np.ndarray,
    blocks: Iterable[tuple[np.ndarray, np.ndarray]],
    origin: np.ndarray,
    num_candidates: int,
    half_squares: np.ndarray | None = None,
) -> np.ndarray:
    """Returns the positions of the nearest rows.

    Args:
        queries: (queries, size), float32.
        blocks: at most `BLOCK_ROWS` rows (rows, size) at a time, with their
            positions (rows,), rising and below 2^32.
        origin: (size,), subtracted from both.
        num_candidates: how many to keep, k.
        half_squares: half the squared lengths from the origin, by position.
            Default `None`: they are computed.

    Returns:
        (queries, k), int64; nearest first, -1 behind the last.
    """
    size = queries.shape[1]
    left = np.ones((len(queries), size + 1), "float32")
    np.subtract(queries, origin, out=left[:, :size])
    best = np.full((len(queries), num_candidates), NOTHING)
    right = np.empty((BLOCK_ROWS, size + 1), "float32")
    products = np.empty(min(len(queries), QUERY_ROWS) * BLOCK_ROWS, "float32")
    workers = _num_processors()
    with ThreadPoolExecutor(workers) as pool:
        for rows, positions in blocks:
            if half_squares is not None and len(queries) <= FEW_QUERIES:
                # Copying the rows would cost more than the product.
                moved = rows - origin if origin.any() else rows
                nearness = left[:, :size] @ moved.T
                nearness -= half_squares[positions]
                _keep_best(nearness, positions, best)
                continue
            block = right[: len(rows)]
            moved = block[:, :size]
            np.subtract(rows, origin, out=moved)
            if half_squares is None:
                block[:, size] = np.einsum("rs,rs->r", moved, moved) / -2
            else:
                np.negative(half_squares[positions], out=block[:, size])
            for start in range(0, len(queries), QUERY_ROWS):
                some = slice(start, start + QUERY_ROWS)
                shape = len(left[some]), len(rows)
                out = products[: shape[0] * shape[1]].reshape(shape)
                np.matmul(left[some], block.T, out=out)
                _keep_shared(pool, workers, out, positions, best[some])
    return np.where(best == NOTHING, -1, best & 0xFFFFFFFF)


def _num_processors():
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _keep_shared(pool, workers, nearness, positions, best):
    """Gives each thread some of the queries of a block."""
    share = min(workers, nearness.size // THREAD_PRODUCTS, len(best))
    if share <= 1:
        _keep_best(nearness, positions, best)
        return
    parts = np.array_split(np.arange(len(best)), share)
    waiting = [
        pool.submit(
            _keep_best,
            nearness[part[0] : part[-1] + 1],
            positions,
            best[part[0] : part[-1] + 1],
        )
        for part in parts
    ]
    for one in waiting:
        one.result()


def _keep_best(nearness, positions, best):
    """Puts what a block has to offer into `best`, in place."""
    hits = np.flatnonzero(_passes(nearness, best))
    if not len(hits):
        return
    num_rows, kept = nearness.shape[1], best.shape[1]
    queries = hits // num_rows
    counts = np.bincount(queries, minlength=len(best))
    touched = np.flatnonzero(counts)
    counts = counts[touched]
    firsts = np.cumsum(counts) - counts
    keys = np.full((len(touched), kept + counts.max()), NOTHING)
    keys[:, :kept] = best[touched]
    places = kept + np.arange(len(hits)) - np.repeat(firsts, counts)
    found = _rising(nearness.reshape(-1)[hits]).astype("int64") << 32
    found |= positions[hits - queries * num_rows]
    keys[np.repeat(np.arange(len(touched)), counts), places] = found
    keys.sort(axis=1)
    best[touched] = keys[:, :kept]


def _passes(nearness, best):
    """What may be among the best, (queries, rows), boolean."""
    num_rows, kept = nearness.shape[1], best.shape[1]
    if best[:, -1].max() < NOTHING:
        # Among equals the lower position is already there.
        return nearness > _nearness(best[:, -1:])
    groups = max(GROUPS, 2 * kept)
    group = num_rows // groups
    if group < 2:
        return np.ones(nearness.shape, bool)
    # The k-th largest of all is at least the k-th largest of some maxima.
    grouped = nearness[:, : group * groups].reshape(-1, group, groups)
    maxima = np.partition(grouped.max(axis=1), groups - kept, axis=1)
    return nearness >= maxima[:, groups - kept, None]


def _rising(nearness):
    """Integers in the falling order of numbers, int32."""
    # Adding 0 makes one zero of two.
    bits = (nearness + np.float32(0)).view("int32")
    return ~(bits ^ ((bits >> 31) & 0x7FFFFFFF))


def _nearness(keys):
    """The numbers that `_rising` was given, from whole keys."""
    bits = ~(keys >> 32).astype("int32")
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).view("float32")
