"""Ranks of a query's positives in exact rankings of a gallery.

Most scores need only the nearest items of a query: `ops.neighbors` finds them.
Very deep rankings sort the whole gallery by products instead.
"""

from collections.abc import Iterator

import numpy as np

from keras_gsp._embeddings import moved_to_origin
from keras_gsp.ops.neighbors import array_items, distinct_rows

# Products of one block of queries with the gallery: 64 MB in float32.
BLOCK_NUMBERS = 2**24
# Rankings deeper than one part in DEEP_SHARE of a gallery are sorted whole.
DEEP_SHARE = 32
# Queries whose nearest items are searched at once, and ranks at once.
SEARCHED_QUERIES = 4096
SEARCHED_RANKS = 2**22

# Queries and ranks of positives, and queries with a tie.
Hits = tuple[np.ndarray, np.ndarray, np.ndarray]


class Relevance:
    """The positives of each query, and the item that its ranking excludes.

    That is the query itself, if the queries are their own gallery. Labels are
    class codes from 0. `num_positives` (queries,) counts the positives in a
    ranking, `num_removed` the items left out of it.
    """

    def __init__(
        self, codes: np.ndarray, gallery_codes: np.ndarray, is_own_gallery: bool
    ) -> None:
        self._codes, self._gallery_codes = codes, gallery_codes
        self._is_own_gallery = is_own_gallery
        size = 1 + max(codes.max(), gallery_codes.max())
        self.num_removed = int(is_own_gallery)
        in_gallery = np.bincount(gallery_codes, minlength=size)[codes]
        self.num_positives = in_gallery - self.num_removed

    def is_positive(self, queries: np.ndarray, items: np.ndarray) -> np.ndarray:
        """Returns whether items have the class of queries, pair by pair.

        Both are positions, of shapes that broadcast.
        """
        return self._codes[queries] == self._gallery_codes[items]

    def is_removed(self, queries: np.ndarray, items: np.ndarray) -> np.ndarray:
        """Returns whether rankings exclude items; see `is_positive`."""
        if self._is_own_gallery:
            return queries == items
        return np.zeros(np.broadcast_shapes(queries.shape, items.shape), bool)


def positive_ranks(
    embeddings: np.ndarray,
    gallery: np.ndarray,
    relevance: Relevance,
    at_least: int = 1,
) -> Iterator[Hits]:
    """Yields queries and ranks of their positives, sorted by query and rank.

    Rankings are by Euclidean distance; equal distances are ordered by position.
    Each is as deep as the query has positives, at least `at_least`. A gallery
    that is the queries' own begins with them. Last in each part are the queries
    with a tie: of a positive and a negative with equal embeddings, one of them
    in that ranking, the order decides.
    """
    counts, removed = relevance.num_positives, relevance.num_removed
    depths = np.maximum(counts, at_least)
    order = np.argsort(depths, kind="stable")
    order = order[counts[order] > 0]
    is_deep = depths[order] + removed > max(1, len(gallery) // DEEP_SHARE)
    queries, items, _ = moved_to_origin(embeddings, gallery)
    distinct = distinct_rows(items)
    settings = depths, relevance
    yield from _nearest_ranks(
        queries, items, distinct[1], order[~is_deep], *settings
    )
    yield from _complete_ranks(
        queries, items, distinct, order[is_deep], *settings
    )


def _nearest_ranks(queries, gallery, distinct, order, depths, relevance):
    """Yields hits among the nearest items of queries, in order of depth."""
    nearest = array_items(gallery)
    by_row, sizes = np.argsort(distinct, kind="stable"), np.bincount(distinct)
    ends = np.cumsum(sizes)
    start = 0
    while start < len(order):
        # As many rows as their common depth allows.
        rows = order[start : start + SEARCHED_QUERIES]
        needed = depths[rows] + relevance.num_removed
        rows = rows[np.arange(1, len(rows) + 1) * needed <= SEARCHED_RANKS]
        rows = order[start : start + max(1, len(rows))]
        start += len(rows)
        depth = min(int(needed[len(rows) - 1]), len(gallery))
        items = nearest(queries[rows], depth)
        kept = ~relevance.is_removed(rows[:, None], items)
        ranks = np.cumsum(kept, axis=1)
        is_positive = relevance.is_positive(rows[:, None], items)
        is_hit = kept & is_positive & (ranks <= depths[rows, None])
        places, columns = np.nonzero(is_hit)
        hits = rows[places], ranks[places, columns]
        near = np.nonzero(kept & (ranks <= depths[rows, None]))
        groups = distinct[items[near]]
        by_group = np.lexsort((groups, near[0]))
        owners, groups = near[0][by_group], groups[by_group]
        is_new = np.diff(owners, prepend=-1) != 0
        is_new |= np.diff(groups, prepend=-1) != 0
        first = np.flatnonzero(is_new)
        owners, groups = rows[owners[first]], groups[first]
        seen = np.diff(first, append=len(by_group))
        found = np.add.reduceat(is_positive[near][by_group].astype(int), first)
        is_tied = (found > 0) & (found < seen)
        # Equal items may go on behind the ranking, as of a collapsed encoder.
        for at in np.flatnonzero(~is_tied & (seen < sizes[groups])):
            end = ends[groups[at]]
            equal = by_row[end - sizes[groups[at]] : end]
            equal = equal[~relevance.is_removed(owners[at], equal)]
            hits_there = relevance.is_positive(owners[at], equal)
            is_tied[at] = hits_there.any() and not hits_there.all()
        yield *hits, owners[is_tied]


def _complete_ranks(queries, gallery, distinct, order, depths, relevance):
    """Yields hits of queries in rankings of the whole gallery."""
    if not len(order):
        return
    # Identical items share one column of a product, hence one distance; two
    # columns of a blocked product may differ in the last bit.
    first, places = distinct
    items = gallery[first]
    halves = np.square(items, dtype="float64").sum(axis=1) / 2
    halves = halves.astype(items.dtype)
    step = max(1, min(1024, BLOCK_NUMBERS // len(gallery)))
    for start in range(0, len(order), step):
        for rows in np.array_split(order[start : start + step], 2):
            if len(rows):
                distances = halves - queries[rows] @ items.T
                yield ranks_by_distance(
                    distances[:, places], rows, relevance, depths, places
                )


def ranks_by_distance(
    distances: np.ndarray,
    queries: np.ndarray,
    relevance: Relevance,
    depths: np.ndarray,
    distinct: np.ndarray,
) -> Hits:
    """Returns the `Hits` for distances (queries, gallery).

    `queries` are positions in `relevance`, each with a positive. Ties are
    looked for up to `depths`, (all queries,), among items of one `distinct`
    row.
    """
    items = np.arange(distances.shape[1])
    removed = relevance.is_removed(queries[:, None], items)
    positive = relevance.is_positive(queries[:, None], items) & ~removed
    nearness = np.where(removed, -np.inf, -distances)
    ordered = np.sort(nearness, axis=1)
    hits, tied = [], []
    for row, query in enumerate(queries):
        own = np.flatnonzero(positive[row])
        values = nearness[row, own]
        below = np.searchsorted(ordered[row], values, side="left")
        upto = np.searchsorted(ordered[row], values, side="right")
        ranks = 1 + len(items) - upto
        if (upto - below > 1).any():
            # Equal distances are ordered by position, as a stable sort does.
            places = np.empty(len(items), "int64")
            order = np.argsort(-nearness[row], kind="stable")
            places[order] = items
            near = order[: depths[query]]
            near = distinct[near[~removed[row, near]]]
            near = np.flatnonzero(np.isin(distinct, near) & ~removed[row])
            near = near[np.argsort(distinct[near])]
            is_tied = np.diff(distinct[near]) == 0
            is_tied &= np.diff(positive[row, near])
            if is_tied.any():
                tied.append(query)
            ranks = 1 + places[own]
        hits.append((np.full(len(own), query), np.sort(ranks)))
    found = zip(*hits, strict=True)
    owners, ranks = (np.concatenate(part) for part in found)
    return owners, ranks, np.array(tied, "int64")
