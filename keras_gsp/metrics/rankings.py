"""Ranks of a query's positives in exact rankings of a gallery."""

from collections.abc import Iterator

import numpy as np

from keras_gsp._embeddings import SearchedSides, moved_to_origin
from keras_gsp.ops.neighbors import array_items, distinct_rows

# Queries whose nearest items are searched at once, and ranks at once.
SEARCHED_QUERIES = 4096
SEARCHED_RANKS = 2**20

# Queries and ranks of positives, and queries with a tie.
Hits = tuple[np.ndarray, np.ndarray, np.ndarray]


def positive_ranks(
    sides: SearchedSides, num_positives: np.ndarray, at_least: int = 1
) -> Iterator[Hits]:
    """Yields queries and ranks of their positives, sorted by query and rank.

    Rankings are by Euclidean distance; equal distances are ordered by position.
    Each is as deep as the query has positives, at least `at_least`; a query is
    left out of its own gallery. Last in each part are the queries with a tie:
    of a positive and a negative with equal embeddings, one of them in that
    ranking, the order decides.
    """
    num_removed = int(sides.is_own_gallery)
    depths = np.maximum(num_positives, at_least)
    order = np.argsort(depths, kind="stable")
    order = order[num_positives[order] > 0]
    queries, gallery, _ = moved_to_origin(sides.embeddings, sides.gallery)
    nearest, distinct = array_items(gallery), distinct_rows(gallery)[1]
    by_row, sizes = np.argsort(distinct, kind="stable"), np.bincount(distinct)
    ends = np.cumsum(sizes)
    start = 0
    while start < len(order):
        # As many rows as their common depth allows.
        rows = order[start : start + SEARCHED_QUERIES]
        needed = depths[rows] + num_removed
        rows = rows[np.arange(1, len(rows) + 1) * needed <= SEARCHED_RANKS]
        rows = order[start : start + max(1, len(rows))]
        start += len(rows)
        depth = min(int(needed[len(rows) - 1]), len(gallery))
        items = nearest(queries[rows], depth)
        kept = np.full(items.shape, True)
        if sides.is_own_gallery:
            kept = rows[:, None] != items
        ranks = np.cumsum(kept, axis=1)
        kept &= ranks <= depths[rows, None]
        is_positive = sides.codes[rows, None] == sides.gallery_codes[items]
        places, columns = np.nonzero(kept & is_positive)
        hits = rows[places], ranks[places, columns]
        near = np.nonzero(kept)
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
            if sides.is_own_gallery:
                equal = equal[equal != owners[at]]
            of_query = sides.gallery_codes[equal] == sides.codes[owners[at]]
            is_tied[at] = of_query.any() and not of_query.all()
        yield *hits, owners[is_tied]
