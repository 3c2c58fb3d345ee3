"""Nearest rows on the host: blocks of products, and what passes a bound.

A product of 129 columns is the nearness itself: `q.r - |r|^2 / 2`, larger is
nearer. A block of it stays in a cache; only what is nearer than the best so
far leaves it, a few dozen numbers a query, as one integer each whose order is
the wanted one: nearness first, then the lower position.

Each processor takes the next block of rows whenever it is done with one, and
all know how near a row has to be by now. BLAS has one thread in each: those
of its own would wait for the next product in a loop, on the processor that
should look through the last one.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from keras_gsp.host.blas_threads import one_blas_thread
from keras_gsp.host.processors import SharedIterator, num_processors
from keras_gsp.host.set_places import set_places

# Rows and queries of a product, 4 MB. Not powers of two: rows so far apart
# fall on the same places of a cache.
BLOCK_ROWS = 2080
QUERY_ROWS = 512
# At least so many groups of rows, and two for each of the k best, bound these
# from below in a first block.
GROUPS = 64
# So few that a product reads the gallery no more than once.
FEW_QUERIES = 8
# Below this many products a thread costs more than it brings.
THREAD_PRODUCTS = 2**18
# Blocks that a thread should have, so that all end at about the same time.
BLOCKS_OF_A_THREAD = 4
NOTHING = np.iinfo("int64").max


def rows_of_a_block(num_rows: int) -> int:
    """Rows to read at a time of so many, at most `BLOCK_ROWS`."""
    blocks = BLOCKS_OF_A_THREAD * num_processors()
    share = -(-num_rows // blocks)
    return min(BLOCK_ROWS, max(share, 4 * GROUPS))


def nearest_on_host(
    queries: np.ndarray,
    blocks: Iterable[tuple[np.ndarray, np.ndarray]],
    origin: np.ndarray,
    num_candidates: int,
    half_squares: np.ndarray | None = None,
    num_needed: int | None = None,
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
        num_needed: how many are asked for in the end. Those kept beyond
            them are returned as far as rounding could exchange them for one
            of these. Takes `half_squares`. Default `None`: all.

    Returns:
        (queries, k) or, with `num_needed`, fewer columns, int64; nearest
        first, -1 behind the last.
    """
    size = queries.shape[1]
    left = np.ones((len(queries), size + 1), "float32")
    np.subtract(queries, origin, out=left[:, :size])
    scan = _Scan(left, origin, num_candidates, half_squares)
    workers = min(
        num_processors(), len(queries) * BLOCK_ROWS // THREAD_PRODUCTS
    )
    if scan.is_of_few or workers <= 1:
        best = scan.best_of(blocks)
    else:
        shared = SharedIterator(blocks)
        with one_blas_thread(), ThreadPoolExecutor(workers) as pool:
            parts = list(pool.map(scan.best_of, [shared] * workers))
        best = np.concatenate(parts, axis=1)
        best.sort(axis=1)
        best = best[:, :num_candidates]
    if num_needed is not None and half_squares is not None:
        longest = np.sqrt(2 * half_squares.max())
        moved = left[:, :size]
        lengths = np.sqrt(np.einsum("qs,qs->q", moved, moved))
        terms = lengths * longest + longest**2 / 2
        best = best[:, : _num_in_doubt(best, num_needed, size * terms)]
    return np.where(best == NOTHING, -1, best & 0xFFFFFFFF)


class _Scan:
    """What one search compares; `best_of` runs in several threads.

    Args:
        left: (queries, size + 1), the moved queries and a column of ones.
        origin: (size,), subtracted from the rows.
        num_candidates: how many to keep.
        half_squares: by position, or `None`.
    """

    def __init__(
        self,
        left: np.ndarray,
        origin: np.ndarray,
        num_candidates: int,
        half_squares: np.ndarray | None,
    ) -> None:
        self.left = left
        self.origin = origin
        self.is_moved = bool(origin.any())
        self.num_candidates = num_candidates
        self.half_squares = half_squares
        self.is_of_few = half_squares is not None and len(left) <= FEW_QUERIES
        # So near are the k best that any thread has seen, at least; a lost
        # update only makes it looser.
        self.bound = np.full((len(left), 1), -np.inf, "float32")

    def best_of(self, blocks: Iterable) -> np.ndarray:
        """Keys of the best rows of these blocks, (queries, candidates)."""
        size = len(self.origin)
        best = np.full((len(self.left), self.num_candidates), NOTHING)
        if self.is_of_few and self.half_squares is not None:
            for rows, positions in blocks:
                # Copying the rows would cost more than the product.
                moved = rows - self.origin if self.is_moved else rows
                nearness = self.left[:, :size] @ moved.T
                nearness -= self.half_squares[positions]
                _keep_best(nearness, positions, best, self.bound)
            return best
        right = np.empty((BLOCK_ROWS, size + 1), "float32")
        shape = min(len(self.left), QUERY_ROWS), BLOCK_ROWS
        products = np.empty(shape[0] * shape[1], "float32")
        for rows, positions in blocks:
            block = self._extended(rows, positions, right)
            for start in range(0, len(self.left), QUERY_ROWS):
                some = slice(start, start + QUERY_ROWS)
                shape = len(self.left[some]), len(rows)
                out = products[: shape[0] * shape[1]].reshape(shape)
                np.matmul(self.left[some], block.T, out=out)
                _keep_best(out, positions, best[some], self.bound[some])
        return best

    def _extended(self, rows, positions, right):
        """The moved rows with a column of -|r|^2 / 2, in place."""
        block = right[: len(rows)]
        moved = block[:, :-1]
        np.subtract(rows, self.origin, out=moved)
        if self.half_squares is None:
            block[:, -1] = np.einsum("rs,rs->r", moved, moved) / -2
        else:
            np.negative(self.half_squares[positions], out=block[:, -1])
        return block


def _num_in_doubt(best, num_needed, terms):
    """Columns that may hold one of the nearest, whatever was rounded.

    A sum of n products is within n roundings of its terms' sizes, which
    Cauchy-Schwarz bounds; twice that, for the vectors were moved and the
    distances that decide are rounded too.
    """
    if num_needed >= best.shape[1]:
        return best.shape[1]
    nearness = np.where(best == NOTHING, -np.inf, _nearness(best))
    error = 2 * np.finfo("float32").eps * terms
    bound = nearness[:, num_needed - 1] - 2 * error
    return max(num_needed, int((nearness >= bound[:, None]).sum(1).max()))


def _keep_best(nearness, positions, best, bound):
    """Puts what a block has to offer into `best`, and raises the bound."""
    hits = set_places(_passes(nearness, best, bound))
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
    is_full = best[:, -1:] < NOTHING
    last = np.where(is_full, _nearness(best[:, -1:]), bound)
    np.maximum(bound, last, out=bound)


def _passes(nearness, best, bound):
    """What may be among the best, (queries, rows), boolean."""
    num_rows, kept = nearness.shape[1], best.shape[1]
    if bound.min() > -np.inf:
        # As near as the last of the best elsewhere may be a lower position.
        least = np.nextafter(bound, np.float32(-np.inf))
        if best[:, -1].max() < NOTHING:
            # Among equals the lower position is already there.
            np.maximum(least, _nearness(best[:, -1:]), out=least)
        return nearness > least
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
