"""Exact nearest neighbors in bounded memory, on the host or an accelerator.

Products in float32 propose candidates: all items whose nearness is within the
rounding of the last wanted one. Distances in float64 order those that rounding
might confuse, equal ones by position, wherever the products were computed.

| symbol | name | meaning |
| --- | --- | --- |
| q.r - |r|^2 / 2 | `nearness` | larger is nearer, for one query |
| 3/2 eps (d + 4) (|q| + D)^2 | `slack` | twice its rounding, D the distance |
| 2^-124 (d + 4) | | and what it loses where products are below 2^-126 |

1. The gallery comes in blocks, and so do the queries: `QUERY_ROWS` at once on
   the host, `DEVICE_QUERIES` on an accelerator, with products of at most
   `PRODUCT_NUMBERS` numbers. These bound the memory, 64 MB in float32 for each
   of at most `MOST_WORKERS` threads, and are large enough for a product to run
   at full speed.
2. On the host, the nearest member of each group of `GROUP_ITEMS` items bounds
   the last wanted item from below: a sixteenth of the numbers is sorted. All
   items above the bound, less the slack, are candidates; only groups whose
   nearest member is one are looked into.
3. Many equal items make many candidates. A query with more than `CROWD` for
   each wanted item waits, and is answered by comparing distinct rows alone.
4. On an accelerator, which sorts fast, `top_k` keeps `SPARE_CANDIDATES` more
   than wanted; a query whose spare ones are all within the slack goes to step
   2. A gallery of at most `DEVICE_MOST_NUMBERS` (8 GB) stays there, in blocks
   of `DEVICE_ROWS`; a search below `DEVICE_LEAST_WORK` multiplications is
   faster on the host than the copies are.
5. Candidates that rounding could have put in a wrong order are measured in
   float64. `UNDERFLOW` and `ROWS_ALIKE` are about products that round in
   another way than the slack assumes.
"""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_gsp.ops.precision import full_matmul

# Rows of the gallery, half their squared lengths and their rising positions.
Block = tuple[np.ndarray, np.ndarray, np.ndarray]

QUERY_ROWS = 512
PRODUCT_NUMBERS = 2**24
DEVICE_QUERIES = 4096
DEVICE_ROWS = 2**16
DEVICE_LEAST_WORK = 2**33
DEVICE_MOST_NUMBERS = 2**31
SPARE_CANDIDATES = 16
GROUP_ITEMS = 16
CROWD = 32
# Threads, each with a product of its own.
MOST_WORKERS = 4
# Four times what a product, a sum or a half square loses below float32's
# smallest normal number, where an accelerator counts zero.
UNDERFLOW = 2.0**-124
# BLAS multiplies several rows at once and the last few one by one, which rounds
# differently; an export, which keeps few candidates, pads its gallery.
ROWS_ALIKE = 64


class NearestItems:
    """Finds the nearest gallery items of queries exactly.

    Args:
        blocks: function from a number of rows to an iterable of blocks of at
            most so many: float32 rows (rows, size) from `origin`, half their
            squared lengths, and their positions, which rise.
        vectors: function from positions to the items' vectors, which decide.
        origin: (size,), near the middle of the data, or `None`: zeros.
    """

    def __init__(
        self,
        blocks: Callable[[int], Iterable[Block]],
        vectors: Callable[[np.ndarray], np.ndarray],
        origin: np.ndarray | None = None,
    ) -> None:
        self._blocks, self._vectors, self._origin = blocks, vectors, origin
        self._on_device: list[tuple[Any, ...]] | None = None
        self._num_items = 0

    def __call__(self, queries: np.ndarray, count: int) -> np.ndarray:
        """Returns positions (queries, count) by distance, -1 for no more."""
        found = np.full((len(queries), count), -1)
        if not self._uses_device(queries):
            self._on_host(queries, np.arange(len(queries)), count, found)
            return found
        for start in range(0, len(queries), DEVICE_QUERIES):
            rows = np.arange(len(queries))[start : start + DEVICE_QUERIES]
            rows = self._of_device(queries, rows, count, found)
            self._on_host(queries, rows, count, found)
        return found

    def _on_host(self, queries, rows, count, found):
        """Writes the items of queries into `found`, in several threads."""
        parts = [
            rows[start : start + QUERY_ROWS]
            for start in range(0, len(rows), QUERY_ROWS)
        ]
        workers = max(1, min(len(parts), os.cpu_count() or 1, MOST_WORKERS))

        def answer(number):
            # Memory that is used again saves half of a product's time.
            room = np.empty(PRODUCT_NUMBERS + GROUP_ITEMS * QUERY_ROWS, "f4")
            for part in parts[number::workers]:
                self._of_host(queries, part, count, found, room)

        if workers < 2:
            answer(0)
            return
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(answer, range(workers)))

    def _of_host(self, queries, rows, count, found, room):
        """Writes the items of few queries into `found`."""
        own, lengths = self._centered(queries[rows])
        # The nearest members of disjoint groups: the last of them bounds the
        # last wanted item, whatever the groups are.
        best = np.full((len(rows), count), -np.inf, "float32")
        totals = np.zeros(len(rows), "int64")
        limit = CROWD * count + 1024
        parts = []
        for block, halves, positions in self._blocks(_block_rows(len(rows))):
            grouped = _grouped_nearness(own, block, halves, count, room)
            maxima = grouped.max(axis=1)
            best = _largest(best, maxima)
            bounds = _bounds(best[:, -1], lengths, own.shape[1])
            # A group whose largest is too small spares a look at the others.
            is_near = maxima >= bounds[:, None]
            num_near = np.count_nonzero(is_near, axis=1)
            is_crowded = totals + num_near > limit
            totals[is_crowded] += num_near[is_crowded]
            is_near[is_crowded] = False
            flat = np.flatnonzero(is_near)
            owners, groups = np.divmod(flat, maxima.shape[1])
            values = grouped[owners, :, groups]
            flat = np.flatnonzero(values >= bounds[owners, None])
            hits, members = np.divmod(flat, values.shape[1])
            owners, values = owners[hits], values.reshape(-1)[flat]
            columns = members * maxima.shape[1] + groups[hits]
            totals += np.bincount(owners, minlength=len(rows))
            is_left = (totals[owners] <= limit) & (columns < len(block))
            columns = columns[is_left]
            parts.append((owners[is_left], positions[columns], values[is_left]))
        if not parts:
            return
        bounds = _bounds(best[:, -1], lengths, own.shape[1])
        is_crowded = totals > limit
        owners, items, values = map(np.concatenate, zip(*parts, strict=True))
        kept = (values >= bounds[owners]) & ~is_crowded[owners]
        self._order(
            queries, rows, owners[kept], items[kept], values[kept], found
        )
        crowded = np.flatnonzero(is_crowded)
        step = max(1, PRODUCT_NUMBERS // max(1, totals.max()) // 4)
        for start in range(0, len(crowded), step):
            some = crowded[start : start + step]
            self._order_crowd(
                queries, rows[some], own[some], bounds[some], found
            )

    def _order(self, queries, rows, owners, items, values, found):
        """Orders candidates: by nearness where rounding cannot confuse them."""
        own, lengths = self._centered(queries[rows])
        order = np.lexsort((-values, owners))
        owners, items, values = owners[order], items[order], values[order]
        slack = values - _bounds(values, lengths[owners], own.shape[1])
        is_near = np.diff(values, append=-np.inf) >= -slack
        is_near &= np.diff(owners, append=-1) == 0
        is_measured = np.zeros(len(rows), bool)
        is_measured[owners[is_near]] = True
        measured = np.flatnonzero(is_measured[owners])
        keys = -values.astype("float64")
        keys[measured] = self._squares(
            queries, rows[owners[measured]], items[measured]
        )
        order = np.lexsort((items, keys, owners))
        owners, items = owners[order], items[order]
        ranks = np.arange(len(owners)) - np.searchsorted(owners, owners)
        wanted = ranks < found.shape[1]
        found[rows[owners[wanted]], ranks[wanted]] = items[wanted]

    def _order_crowd(self, queries, rows, own, bounds, found):
        """Orders very many candidates, which are often copies of few."""
        near = []
        for block, halves, positions in self._blocks(_block_rows(len(rows))):
            nearness = own @ block.T
            nearness -= halves
            near.append(positions[(nearness >= bounds[:, None]).any(axis=0)])
        items = np.concatenate(near)
        first, copies = distinct_rows(self._vectors(items))
        for row in rows:
            pairs = np.broadcast_to(row, first.shape), items[first]
            squares = self._squares(queries, *pairs)[copies]
            order = np.argsort(squares, kind="stable")[: found.shape[1]]
            found[row, : len(order)] = items[order]

    def _squares(self, queries, rows, items):
        """Squared distances of pairs in float64."""
        squares = np.empty(len(items))
        step = max(1, PRODUCT_NUMBERS // 8 // queries.shape[1])
        for start in range(0, len(items), step):
            some = slice(start, start + step)
            vectors = self._vectors(items[some])
            squares[some] = _squared_gaps(queries[rows[some]], vectors)
        return squares

    def _centered(self, queries):
        """Queries from the origin in float32, and their lengths."""
        if self._origin is not None:
            queries = queries - self._origin
        own = queries.astype("float32", copy=False)
        return own, np.linalg.norm(own.astype("float64"), axis=1)

    def _uses_device(self, queries):
        """Whether an accelerator holds the gallery and the search is large."""
        if not has_accelerator():
            return False
        if self._on_device is None:
            count = num_numbers = 0
            parts: list[Any] = []
            blocks = _joined(self._blocks(DEVICE_ROWS), DEVICE_ROWS)
            for block, halves, positions in blocks:
                # Few different shapes, because each is compiled.
                length = _power_of_two(len(block))
                count += len(block)
                num_numbers += length * block.shape[1]
                if num_numbers > DEVICE_MOST_NUMBERS:
                    parts = []
                    break
                places = np.zeros(length, "int32")
                places[: len(block)] = positions
                held = *_padded(block, halves, length), places
                parts.append(tuple(map(ops.convert_to_tensor, held)))
            # Other threads see all parts or none.
            self._num_items, self._on_device = count, parts
        work = queries.size * self._num_items
        return bool(self._on_device) and work >= DEVICE_LEAST_WORK

    def _of_device(self, queries, rows, count, found):
        """As `_of_host`; returns the queries that may have more candidates."""
        own, lengths = self._centered(queries[rows])
        num_kept = _power_of_two(count + SPARE_CANDIDATES)
        num_filled = _power_of_two(len(own)) - len(own)
        left = ops.convert_to_tensor(np.pad(own, ((0, num_filled), (0, 0))))
        values = items = None
        total = self._num_items
        for block, halves, positions in self._on_device or []:
            nearness = _device_nearness()(left, block, halves)
            top = ops.top_k(nearness, min(num_kept, nearness.shape[1]))
            places = ops.take(positions, top[1])
            if values is not None:
                values = ops.concatenate([values, top[0]], axis=1)
                places = ops.concatenate([items, places], axis=1)
                top = ops.top_k(values, min(num_kept, values.shape[1]))
                places = ops.take_along_axis(places, top[1], axis=1)
            values, items = top[0], places
        values, items = (
            ops.convert_to_numpy(one)[: len(own)] for one in (values, items)
        )
        last = values[:, min(count, total) - 1]
        bounds = _bounds(last, lengths, own.shape[1])
        is_open = (values[:, -1] >= bounds) & (num_kept < total)
        owners, columns = np.nonzero(values >= bounds[:, None])
        kept = ~is_open[owners]
        owners, columns = owners[kept], columns[kept]
        places = items[owners, columns].astype("int64")
        self._order(
            queries, rows, owners, places, values[owners, columns], found
        )
        return rows[is_open]


@cache
def _device_nearness():
    """The function that computes nearness on an accelerator."""

    def nearness(queries, block, halves):
        return full_matmul(queries, ops.transpose(block)) - halves

    if keras.backend.backend() == "jax":
        import jax

        # XLA's search for the fastest product took seven seconds for each
        # shape on an H200, and gained nothing.
        options = {"xla_gpu_autotune_level": 0}
        is_gpu = jax.default_backend() == "gpu"
        return jax.jit(nearness, compiler_options=options if is_gpu else None)
    return nearness


def array_items(gallery: np.ndarray) -> NearestItems:
    """Returns the search in an array (items, size) near 1 and the origin."""
    squares = np.einsum("rs,rs->r", gallery, gallery, dtype="float64")
    halves = (squares / 2).astype("float32")

    def blocks(num_rows):
        for start in range(0, len(gallery), num_rows):
            some = slice(start, start + num_rows)
            rows = gallery[some].astype("float32", copy=False)
            yield rows, halves[some], np.arange(start, start + len(rows))

    return NearestItems(blocks, gallery.__getitem__)


def has_accelerator() -> bool:
    """Whether Keras's backend computes on something else than the CPU."""
    match keras.backend.backend():
        case "jax":
            import jax

            return jax.default_backend() != "cpu"
        case "tensorflow":
            import tensorflow as tf

            return bool(tf.config.list_logical_devices("GPU"))
        case "torch":
            return ops.zeros(1).device.type == "cuda"
    return False


def ordered_exactly(
    queries: np.ndarray,
    vectors: np.ndarray,
    indices: np.ndarray,
    excluded: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Orders candidates by exact distance, then by index.

    `vectors` (queries, candidates, size) are those of `indices`, -1 for none;
    `excluded` is one index to leave out for each query. Returns distances in
    float32 and indices, infinity and -1 for none.
    """
    indices = np.where(indices == excluded[:, None], -1, indices)
    squares = _squared_gaps(queries[:, None, :], vectors)
    distances = np.where(indices < 0, np.inf, np.sqrt(squares))
    order = np.lexsort((indices, distances), axis=1)
    return (
        np.take_along_axis(distances, order, axis=1).astype("float32"),
        np.take_along_axis(indices, order, axis=1),
    )


def distinct_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns positions of the distinct rows, and which of them each row is."""
    rows = np.ascontiguousarray(rows + 0.0)  # -0.0 becomes 0.0
    whole = rows.view(np.dtype((np.void, rows.strides[0]))).reshape(-1)
    _, first, places = np.unique(whole, return_index=True, return_inverse=True)
    return first, places.reshape(-1)


def rows_alike(
    rows: np.ndarray, half_squares: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Pads to a multiple of `ROWS_ALIKE` rows, infinitely far away."""
    return _padded(rows, half_squares, -(-len(rows) // ROWS_ALIKE) * ROWS_ALIKE)


def _padded(rows, half_squares, length):
    added = length - len(rows)
    return (
        np.pad(rows, ((0, added), (0, 0))),
        np.pad(half_squares, (0, added), constant_values=np.inf),
    )


def _joined(blocks, num_rows):
    """Joins blocks, one for each `add`, into few of at most so many rows."""
    held: list[Block] = []
    count = 0
    for block in blocks:
        if held and count + len(block[0]) > num_rows:
            yield map(np.concatenate, zip(*held, strict=True))
            held, count = [], 0
        held.append(block)
        count += len(block[0])
    if held:
        yield map(np.concatenate, zip(*held, strict=True))


def _power_of_two(number):
    """The smallest one that is at least as large."""
    return 1 << int(number - 1).bit_length()


def _block_rows(num_queries):
    return min(PRODUCT_NUMBERS // num_queries, 2**16)


def _bounds(values, lengths, size):
    """The nearness that rounding may have made of one that is as large."""
    squares = np.maximum(np.square(lengths) - 2.0 * values, 0)
    reach = lengths + np.sqrt(squares)
    slack = 1.5 * np.finfo("float32").eps * (size + 4) * np.square(reach)
    slack += UNDERFLOW * (size + 4)
    bounds = values - np.where(np.isfinite(slack), slack, 0)
    return np.nextafter(bounds.astype("float32"), np.float32(-np.inf))


def _grouped_nearness(queries, block, halves, count, room):
    """Nearness in groups of columns, (queries, members, groups), in `room`.

    A group's columns lie far apart, for galleries in the order of their
    classes; the last ones may be missing, -infinity.
    """
    num_columns = len(block)
    # Many more groups than wanted items: few have two of them.
    size = max(1, min(GROUP_ITEMS, num_columns // (4 * count)))
    num_groups = -(-num_columns // size)
    nearness = room[: len(queries) * size * num_groups]
    nearness = nearness.reshape(len(queries), size * num_groups)
    inside = nearness[:, :num_columns]
    np.matmul(queries, block.T, out=inside)
    inside -= halves
    nearness[:, num_columns:] = -np.inf
    return nearness.reshape(len(queries), size, num_groups)


def _largest(best, values):
    """The largest of both, as many as `best` has columns, the least last."""
    count = best.shape[1]
    both = np.concatenate([best, values], axis=1)
    place = both.shape[1] - count
    return np.partition(both, place, axis=1)[:, place:][:, ::-1]


def _squared_gaps(points, others):
    gaps = others.astype("float64") - points
    return np.einsum("...s,...s->...", gaps, gaps)
