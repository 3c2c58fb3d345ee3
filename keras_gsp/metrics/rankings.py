"""Ranks of the right answers in exact rankings of a gallery.

Only the nearest items of a query matter to most scores, and to find them is
what takes the time. So a bound is guessed that a few dozen items pass, from
the query's nearest ones in a random sample; all products of a block are
compared with it once; what passes is put in order by its distance in float64.
A query with too few behind its bound is searched again without a guess, so
that nothing depends on luck.

| symbol | name | meaning |
| --- | --- | --- |
| -|x - y|^2 / 2 | `nearness` | larger is nearer; symmetric |
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations_with_replacement
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_gsp.embeddings.labeled_embeddings import moved_to_origin
from keras_gsp.host.processors import num_processors
from keras_gsp.host.set_places import set_places
from keras_gsp.metrics.relevance import Relevance
from keras_gsp.ops.precision import full_precision_matmul

# Nearness of one block of queries to the whole gallery: 64 MB in float32.
BLOCK_NUMBERS = 2**24
# Rows and columns of the square blocks of a symmetric search: 16 MB.
TILE_ROWS = 2048
# A gallery up to this size is its own sample.
SAMPLE_ITEMS = 1024
# Candidates that a symmetric search keeps for all queries: 96 MB.
MAX_CANDIDATES = 2**23
# Deeper rankings than this share of a gallery are sorted as a whole.
DEEP_SHARE = 32
# A row of a block with so many candidates for each wanted one has ties.
CROWD = 32

Hits = tuple[np.ndarray, np.ndarray]


def positive_ranks(
    embeddings: np.ndarray,
    gallery: np.ndarray,
    relevance: Relevance,
    *,
    at_least: int = 1,
    is_complete: bool = False,
    block_size: int | None = None,
) -> Iterator[Hits]:
    """Yields at which rank of its ranking a query meets its positives.

    Rankings are by Euclidean distance, equal distances by position.

    Args:
        embeddings: (queries, size), float32 or float64, finite.
        gallery: (gallery, size); begins with the queries where these are
            removed from their own rankings.
        relevance: positives of each query, and what is left out.
        at_least: depth of every ranking; one of R positives is ranked to
            depth R at least.
        is_complete: whether to rank the whole gallery.
        block_size: queries ranked at once; `None` means 64 MB.

    Yields:
        Queries and ranks from 1, two arrays (hits,): by query, then by rank,
        all hits of a query together.
    """
    search = _Search(embeddings, gallery, relevance, at_least, block_size)
    order = np.argsort(relevance.num_positives, kind="stable")
    order = order[relevance.num_positives[order] > 0]
    if is_complete:
        yield from search.complete(order)
        return
    deep = search.depths[order] > max(1, len(gallery) // DEEP_SHARE)
    shallow, deep = order[~deep], order[deep]
    if search.is_worth_symmetry(shallow):
        yield from search.symmetric(shallow)
    else:
        yield from search.nearest(shallow)
    yield from search.complete(deep)


def ranks_by_distance(
    distances: np.ndarray, queries: np.ndarray, relevance: Relevance
) -> Hits:
    """Ranks at which queries meet their positives by distances given.

    Args:
        distances: (queries, gallery).
        queries: (queries,), positions of the queries in `relevance`, each
            with a positive.
        relevance: positives of each query, and what is left out.

    Returns:
        Queries and ranks, as `positive_ranks` yields them.
    """
    items = np.arange(distances.shape[1])
    removed = relevance.is_removed(queries[:, None], items)
    positive = relevance.is_positive(queries[:, None], items) & ~removed
    nearness = np.where(removed, -np.inf, -distances)
    return _complete_hits(queries, nearness, positive)


class _Search:
    """A gallery, its queries, and the ways to rank the one for the other."""

    def __init__(self, embeddings, gallery, relevance, at_least, block_size):
        self.relevance = relevance
        self.is_square = gallery is embeddings
        self.block_size = block_size
        self.depths = np.maximum(relevance.num_positives, at_least)
        self.depths = np.minimum(
            self.depths + relevance.num_removed, len(gallery)
        )
        self.queries, self.gallery, _ = moved_to_origin(embeddings, gallery)
        # Two more columns make a product the nearness itself.
        self.left = _with_squares(self.queries, is_left=True)
        self.right = _with_squares(self.gallery, is_left=False)
        largest = -2 * min(self.left[:, -1].min(), self.right[:, -2].min())
        # Rounding of a product of this length; some backends have no float64.
        dtype = ops.convert_to_tensor(self.left[:1]).dtype
        dtype = keras.backend.standardize_dtype(dtype)
        rounding = np.finfo(dtype).eps * (self.left.shape[1] + 2)
        self.slack = 2 * rounding * max(float(largest), 1e-30)
        rng = np.random.default_rng(0)
        num_sampled = max(SAMPLE_ITEMS, len(gallery) // 16)
        self.sample: Any = None
        if num_sampled < len(gallery):
            rows = rng.permutation(len(gallery))[:num_sampled]
            self.sample = self.right[np.sort(rows)]

    def is_worth_symmetry(self, queries):
        """Tells whether each product may serve two queries."""
        if not self.is_square or self.sample is None or not len(queries):
            return False
        depths, counts = np.unique(self.depths[queries], return_counts=True)
        expected = np.sum(self._sampled_rank(depths) * counts)
        expected *= len(self.gallery) / len(self.sample)
        is_most = 2 * len(queries) > len(self.gallery)
        return is_most and expected < MAX_CANDIDATES / 2

    def nearest(self, queries):
        """Yields hits of queries, each compared with the whole gallery."""
        for rows in _blocks(queries, self.num_rows):
            yield from self._nearest_block(rows, self.sample is not None)

    def symmetric(self, queries):
        """Yields hits of queries that are the gallery, by square blocks."""
        bounds = np.full(len(self.gallery), np.inf, self.left.dtype)
        for rows in _blocks(queries, self.num_rows):
            bounds[rows] = self._sampled_bounds(rows)
        found: list[tuple] = []
        num_found = 0
        items = np.arange(len(self.gallery), dtype="int32")
        tiles = list(_blocks(items, self._tile_rows))
        pairs = combinations_with_replacement(range(len(tiles)), 2)

        def candidates_of(pair):
            rows, columns = (tiles[i] for i in pair)
            right = ops.convert_to_tensor(self.right[columns].T)
            return self._tile_candidates(rows, columns, right, bounds)

        # While one thread waits for a product, another looks through its own.
        with ThreadPoolExecutor(num_processors()) as pool:
            for part in pool.map(candidates_of, pairs):
                found += part
                num_found += sum(len(owners) for owners, *_ in part)
                if num_found > MAX_CANDIDATES:
                    pool.shutdown(cancel_futures=True)
                    break
        if num_found > MAX_CANDIDATES:
            # Many equal items: no bound parts them.
            del found
            yield from self.nearest(queries)
            return
        candidates = [np.concatenate(part) for part in zip(*found, strict=True)]
        del found
        for rows in _blocks(queries, 2**14):
            chosen = np.isin(candidates[0], rows)
            part = [values[chosen] for values in candidates]
            yield from self._hits(rows, part, bounds, is_guess=True)

    def _tile_candidates(self, rows, columns, right, bounds):
        """What passes the bounds of the rows, and what those of the columns.

        Args:
            rows: (rows,), items; the left side of the product.
            columns: (columns,), items, the same or later ones.
            right: the right side of the product.
            bounds: by item.

        Returns:
            A list of queries, items and nearness, one or two.
        """
        nearness = _product(ops.convert_to_tensor(self.left[rows]), right)
        near = nearness >= bounds[rows, None]
        found = [_pairs(near, nearness, rows, columns)]
        if columns[0] != rows[0]:
            np.greater_equal(nearness, bounds[columns], out=near)
            items, others, values = _pairs(near, nearness, rows, columns)
            found.append((others, items, values))
        return found

    def complete(self, queries):
        """Yields hits of queries in rankings of the whole gallery."""
        distinct, columns = _without_copies(self.right)
        right = ops.convert_to_tensor(distinct.T)
        for rows in _blocks(queries, max(1, self.num_rows // 2)):
            nearness = _product(ops.convert_to_tensor(self.left[rows]), right)
            nearness = nearness if columns is None else nearness[:, columns]
            yield ranks_by_distance(-nearness, rows, self.relevance)

    @property
    def num_rows(self):
        """Queries compared with the whole gallery at once."""
        if self.block_size is not None:
            return self.block_size
        return max(1, min(1024, BLOCK_NUMBERS // len(self.gallery)))

    @property
    def _tile_rows(self):
        return self.block_size or TILE_ROWS

    def _nearest_block(self, rows, is_guess):
        """Yields hits of some queries, compared with the whole gallery."""
        if not hasattr(self, "_whole"):
            self._whole = ops.convert_to_tensor(self.right.T)
        left = ops.convert_to_tensor(self.left[rows])
        nearness = _product(left, self._whole)
        if is_guess:
            bounds = self._sampled_bounds(rows)
        else:
            depth = int(self.depths[rows].max())
            bounds = _nth_largest(nearness, depth) - self.slack
        near = nearness >= bounds[:, None]
        sizes = near.sum(axis=1)
        is_crowded = sizes > CROWD * self.depths[rows] + 1024
        if is_crowded.any():
            near[is_crowded] = False
            yield from self._crowded(rows[is_crowded])
        items = np.arange(len(self.gallery))
        candidates = _pairs(near, nearness, rows, items)
        all_bounds = np.full(len(self.queries), np.inf, bounds.dtype)
        all_bounds[rows] = bounds
        yield from self._hits(
            rows[~is_crowded], candidates, all_bounds, is_guess
        )

    def _hits(self, rows, candidates, bounds, is_guess):
        """Yields hits of queries among the candidates that passed bounds."""
        owners, items, nearness = candidates
        order = np.lexsort((-nearness, owners))
        owners, items, nearness = owners[order], items[order], nearness[order]
        starts = np.searchsorted(owners, rows)
        stops = np.searchsorted(owners, rows, side="right")
        last = np.minimum(starts + self.depths[rows], stops) - 1
        worst = np.full(len(self.queries), np.inf, nearness.dtype)
        if len(nearness):
            worst[rows] = nearness[last] - self.slack
        is_short = stops - starts < self.depths[rows]
        if is_guess:
            # An item behind the bound may be as near as the last one here.
            is_short |= worst[rows] < bounds[rows]
            worst[rows[is_short]] = np.inf
        kept = nearness >= worst[owners]
        owners, items = owners[kept], items[kept]
        kept = ~self.relevance.is_removed(owners, items)
        owners, items = owners[kept], items[kept]
        distances = self._squared_distances(owners, items)
        order = np.lexsort((items, distances, owners))
        owners, items = owners[order], items[order]
        ranks = 1 + np.arange(len(owners)) - np.searchsorted(owners, owners)
        is_hit = self.relevance.is_positive(owners, items)
        is_hit &= ranks <= (self.depths - self.relevance.num_removed)[owners]
        yield owners[is_hit], ranks[is_hit]
        if is_guess:
            for again in _blocks(rows[is_short], self.num_rows):
                yield from self._nearest_block(again, is_guess=False)

    def _crowded(self, queries):
        """Yields hits of queries with very many items at one distance."""
        distinct, columns = _without_copies(self.right)
        right = ops.convert_to_tensor(distinct.T)
        depth = int(self.depths[queries].max())
        for rows in _blocks(queries, self.num_rows):
            nearness = _product(ops.convert_to_tensor(self.left[rows]), right)
            nearness = nearness if columns is None else nearness[:, columns]
            # Both backends give the lower position first among equals.
            _, items = ops.top_k(ops.convert_to_tensor(nearness), depth)
            items = ops.convert_to_numpy(items).reshape(-1)
            owners = np.repeat(rows, depth)
            kept = ~self.relevance.is_removed(owners, items)
            owners, items = owners[kept], items[kept]
            starts = np.flatnonzero(np.diff(owners, prepend=-1))
            sizes = np.diff(starts, append=len(owners))
            ranks = 1 + np.arange(len(owners)) - np.repeat(starts, sizes)
            is_hit = self.relevance.is_positive(owners, items)
            yield owners[is_hit], ranks[is_hit]

    def _sampled_bounds(self, rows):
        """A nearness that a few more items than wanted should reach."""
        nearness = _product(
            ops.convert_to_tensor(self.left[rows]),
            ops.convert_to_tensor(self.sample.T),
        )
        rank = int(self._sampled_rank(self.depths[rows].max()))
        # The largest of each eight are as good a guess, and found faster.
        if 64 * rank < nearness.shape[1]:
            eighth = nearness.shape[1] // 8
            nearness = nearness[:, : 8 * eighth].reshape(len(rows), 8, eighth)
            nearness = nearness.max(axis=1)
        return _nth_largest(nearness, rank) - self.slack

    def _sampled_rank(self, depth):
        """Place in the sample behind which all wanted items surely are."""
        expected = depth * len(self.sample) / len(self.gallery)
        # Three standard deviations: one query in some hundred is too many.
        return np.ceil(expected + 3 * np.sqrt(expected) + 1)

    def _squared_distances(self, queries, items):
        """Of pairs, in float64: equal for equal items, wherever they are."""
        found = np.empty(len(queries))
        for rows in _blocks(np.arange(len(queries)), 2**14):
            gaps = self.queries[queries[rows]].astype("float64")
            gaps -= self.gallery[items[rows]]
            found[rows] = np.square(gaps).sum(axis=1)
        return found


def _complete_hits(rows, nearness, positive):
    """Hits of rankings of the whole gallery; `nearness` (rows, gallery)."""
    nearness = np.asarray(nearness)
    ordered = np.sort(nearness, axis=1)
    hits = []
    for row, query in enumerate(rows):
        items = np.flatnonzero(positive[row])
        values = nearness[row, items]
        below = np.searchsorted(ordered[row], values, side="left")
        upto = np.searchsorted(ordered[row], values, side="right")
        if (upto - below > 1).any():
            # Equal ones are in order of position, as a stable sort has them.
            places = np.empty(len(nearness[row]), "int64")
            places[np.argsort(-nearness[row], kind="stable")] = np.arange(
                len(places)
            )
            ranks = 1 + places[items]
        else:
            ranks = 1 + ordered.shape[1] - upto
        hits.append((np.full(len(items), query), np.sort(ranks)))
    return tuple(np.concatenate(part) for part in zip(*hits, strict=True))


def _pairs(near, nearness, rows, columns):
    """Queries, items and nearness of the places where `near` is true."""
    places = set_places(near)
    across, down = places % near.shape[1], places // near.shape[1]
    return rows[down], columns[across], nearness.reshape(-1)[places]


def _product(left: Any, right: Any) -> np.ndarray:
    with full_precision_matmul():
        # `convert_to_numpy` would copy what lies in the host's memory.
        return np.asarray(ops.matmul(left, right))


def _nth_largest(values, rank):
    """The rank-th largest value of each row."""
    place = values.shape[1] - min(rank, values.shape[1])
    return np.partition(values, place, axis=1)[:, place]


def _with_squares(points, *, is_left):
    """Adds the columns 1 and -|x|^2 / 2, or these two exchanged."""
    half_squares = np.sum(np.square(points, dtype="float64"), axis=1) / -2
    columns = [np.ones(len(points)), half_squares]
    extra = np.stack(columns if is_left else columns[::-1], axis=1)
    return np.concatenate([points, extra.astype(points.dtype)], axis=1)


def _without_copies(gallery):
    """Returns distinct items and where each item now is, `None` if as before.

    Identical items then share one column of the product, hence one distance,
    bit for bit, which two columns of a blocked product need not.
    """
    gallery = np.ascontiguousarray(gallery + 0.0)  # -0.0 becomes 0.0
    rows = gallery.view(np.dtype((np.void, gallery.strides[0]))).reshape(-1)
    _, first, columns = np.unique(rows, return_index=True, return_inverse=True)
    if len(first) == len(gallery):
        return gallery, None
    return gallery[first], columns.reshape(-1)


def _blocks(values, size):
    for start in range(0, len(values), size):
        yield values[start : start + size]
