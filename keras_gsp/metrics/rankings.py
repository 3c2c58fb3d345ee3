"""Ranks of a query's positives in exact rankings of a gallery.

Most scores need only the nearest items of a query. A random sample of the
gallery gives a bound that a few dozen items pass; the products of a block of
queries with the gallery are compared with it, and the items that pass are
sorted by their distance in float64. A query with too few of them is searched
again with an exact bound: no result depends on the sample.

| symbol | name | meaning |
| --- | --- | --- |
| -|x - y|^2 / 2 + |x|^2 / 2 | `nearness` | larger is nearer, for one query |
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_gsp.embeddings.labeled_embeddings import moved_to_origin
from keras_gsp.metrics.relevance import Relevance

# Products of one block of queries with the gallery: 64 MB in float32.
BLOCK_NUMBERS = 2**24
# A gallery up to this size is searched without a sample.
SAMPLE_ITEMS = 1024
# Rankings deeper than one part in DEEP_SHARE of a gallery are sorted whole, and
# so are queries with more than CROWD candidates per wanted item (ties).
DEEP_SHARE = 32
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
    """Yields queries and ranks of their positives, sorted by query and rank.

    Rankings are by Euclidean distance; equal distances are ordered by
    position. Each is as deep as the query has positives, at least `at_least`;
    all of the gallery if `is_complete`. A gallery that is the queries' own
    begins with them. All hits of a query are in one pair of arrays.
    """
    search = _Search(embeddings, gallery, relevance, at_least, block_size)
    order = np.argsort(relevance.num_positives, kind="stable")
    order = order[relevance.num_positives[order] > 0]
    is_deep = search.depths[order] > max(1, len(gallery) // DEEP_SHARE)
    is_deep |= is_complete
    for rows in search.blocks(order[~is_deep]):
        yield from search.nearest(rows, search.sample is not None)
    yield from search.complete(order[is_deep])


def ranks_by_distance(
    distances: np.ndarray, queries: np.ndarray, relevance: Relevance
) -> Hits:
    """Returns queries and ranks of positives for (queries, gallery) distances.

    `queries` are positions in `relevance`, each with a positive.
    """
    items = np.arange(distances.shape[1])
    removed = relevance.is_removed(queries[:, None], items)
    positive = relevance.is_positive(queries[:, None], items) & ~removed
    nearness = np.where(removed, -np.inf, -distances)
    ordered = np.sort(nearness, axis=1)
    hits = []
    for row, query in enumerate(queries):
        own = np.flatnonzero(positive[row])
        values = nearness[row, own]
        below = np.searchsorted(ordered[row], values, side="left")
        upto = np.searchsorted(ordered[row], values, side="right")
        ranks = 1 + len(items) - upto
        if (upto - below > 1).any():
            # Equal distances are ordered by position, as a stable sort does.
            places = np.empty(len(items), "int64")
            places[np.argsort(-nearness[row], kind="stable")] = items
            ranks = 1 + places[own]
        hits.append((np.full(len(own), query), np.sort(ranks)))
    found = zip(*hits, strict=True)
    owners, ranks = (np.concatenate(part) for part in found)
    return owners, ranks


class _Search:
    """A gallery and its queries, ready to be compared."""

    def __init__(self, embeddings, gallery, relevance, at_least, block_size):
        self.relevance = relevance
        size = max(1, min(1024, BLOCK_NUMBERS // len(gallery)))
        self.block_size = block_size or size
        depths = np.maximum(relevance.num_positives, at_least)
        self.depths = np.minimum(depths + relevance.num_removed, len(gallery))
        self.queries, self.gallery, _ = moved_to_origin(embeddings, gallery)
        # One more column makes a product the nearness itself.
        squares = np.sum(np.square(self.gallery, dtype="float64"), axis=1)
        column = (squares / -2).astype(self.gallery.dtype)[:, None]
        self.right = np.concatenate([self.gallery, column], axis=1)
        ones = np.ones((len(self.queries), 1), self.queries.dtype)
        self.left = np.concatenate([self.queries, ones], axis=1)
        # Rounding of a product of this length.
        largest = np.square(self.queries, dtype="float64").sum(axis=1).max()
        rounding = np.finfo(self.left.dtype).eps * (self.left.shape[1] + 2)
        self.slack = 2 * rounding * max(float(largest + squares.max()), 1e-30)
        self.sample: Any = None
        num_sampled = max(SAMPLE_ITEMS, len(gallery) // 16)
        if num_sampled < len(gallery):
            rows = np.random.default_rng(0).permutation(len(gallery))
            self.sample = self.right[np.sort(rows[:num_sampled])]

    def blocks(self, queries):
        """Yields queries, as many as are compared at once."""
        for start in range(0, len(queries), self.block_size):
            yield queries[start : start + self.block_size]

    def complete(self, queries):
        """Yields hits of queries in rankings of the whole gallery."""
        if not len(queries):
            return
        right, columns = _without_copies(self.right)
        for block in self.blocks(queries):
            for rows in np.array_split(block, min(2, len(block))):
                nearness = self.left[rows] @ right.T
                if columns is not None:
                    nearness = nearness[:, columns]
                yield ranks_by_distance(-nearness, rows, self.relevance)

    def nearest(self, rows, is_guess):
        """Yields hits of some queries, compared with the whole gallery."""
        nearness = self.left[rows] @ self.right.T
        depths = self.depths[rows]
        if is_guess:
            bounds = self._sampled_bounds(rows)
        else:
            bounds = _nth_largest(nearness, int(depths.max())) - self.slack
        near = nearness >= bounds[:, None]
        is_crowded = near.sum(axis=1) > CROWD * depths + 1024
        yield from self.complete(rows[is_crowded])
        kept = np.flatnonzero(~is_crowded)
        owners, items = np.nonzero(near[kept])
        owners = kept[owners]
        values = nearness[owners, items]
        order = np.lexsort((-values, owners))
        owners, items, values = owners[order], items[order], values[order]
        # The nearness of the last wanted item bounds what is measured again.
        starts = np.searchsorted(owners, kept)
        counts = np.searchsorted(owners, kept, side="right") - starts
        last = starts + np.minimum(counts, depths[kept]) - 1
        worst = np.full(len(rows), np.inf)
        has_any = counts > 0
        worst[kept[has_any]] = values[last[has_any]] - self.slack
        is_short = counts < depths[kept]
        if is_guess:
            # An item outside the bound may be as near as the last one here.
            is_short |= worst[kept] < bounds[kept]
            worst[kept[is_short]] = np.inf
        measured = values >= worst[owners]
        yield self._hits(rows[owners[measured]], items[measured])
        if is_guess and is_short.any():
            yield from self.nearest(rows[kept[is_short]], is_guess=False)

    def _hits(self, owners, items):
        """Ranks candidates by distance and returns the positives."""
        kept = ~self.relevance.is_removed(owners, items)
        owners, items = owners[kept], items[kept]
        order = np.lexsort((items, self._distances(owners, items), owners))
        owners, items = owners[order], items[order]
        ranks = 1 + np.arange(len(owners)) - np.searchsorted(owners, owners)
        is_hit = self.relevance.is_positive(owners, items)
        is_hit &= ranks <= (self.depths - self.relevance.num_removed)[owners]
        return owners[is_hit], ranks[is_hit]

    def _sampled_bounds(self, rows):
        """Returns a nearness that a few more items than wanted should reach."""
        depth = int(self.depths[rows].max())
        expected = depth * len(self.sample) / len(self.gallery)
        # Three standard deviations: few queries are searched twice.
        rank = int(np.ceil(expected + 3 * np.sqrt(expected) + 1))
        nearness = self.left[rows] @ self.sample.T
        return _nth_largest(nearness, rank) - self.slack

    def _distances(self, queries, items):
        """Returns squared distances of pairs in float64."""
        found = np.empty(len(queries))
        for start in range(0, len(queries), 2**14):
            rows = slice(start, start + 2**14)
            gaps = self.queries[queries[rows]].astype("float64")
            gaps -= self.gallery[items[rows]]
            found[rows] = np.square(gaps).sum(axis=1)
        return found


def _nth_largest(values, rank):
    """Returns the rank-th largest value of each row."""
    place = values.shape[1] - min(rank, values.shape[1])
    return np.partition(values, place, axis=1)[:, place]


def _without_copies(gallery):
    """Returns distinct items and the place of each item, or `None`.

    Identical items then share one column of a product, hence one distance;
    two columns of a blocked product may differ in the last bit.
    """
    gallery = np.ascontiguousarray(gallery + 0.0)  # -0.0 becomes 0.0
    rows = gallery.view(np.dtype((np.void, gallery.strides[0]))).reshape(-1)
    _, first, columns = np.unique(rows, return_index=True, return_inverse=True)
    if len(first) == len(gallery):
        return gallery, None
    return gallery[first], columns.reshape(-1)
