"""Exact rankings of a gallery, in blocks of queries."""

import numpy as np
from keras import ops

from keras_gsp.embeddings.origin import moved_to_origin
from keras_gsp.ops.arguments import check_count
from keras_gsp.ops.matmul_precision import full_precision_matmul

# Scores of one block of queries against the whole gallery: 64 MB in float32.
BLOCK_NUMBERS = 2**24


def rankings(
    embeddings, gallery, num_positives, *, at_least, block_size, remove_self
):
    """Yields the nearest gallery items of each query, block by block.

    Queries with few positives come first, so that a class of thousands makes
    long rankings for its own members only.

    Args:
        embeddings: (queries, size), float32 or float64.
        gallery: (gallery, size), the queries themselves where a query is to
            be removed from its own ranking.
        num_positives: (queries,), how long each ranking must be at least;
            queries with 0 are left out.
        at_least: how long every ranking must be, at least 1.
        block_size: queries ranked at once.
        remove_self: whether item i is removed from the ranking of query i.

    Yields:
        Positions of the queries (block,), and of their neighbours (block,
        length), nearest first, equal ones by position.
    """
    queries, gallery, _ = moved_to_origin(embeddings, gallery)
    num_items = len(gallery)
    gallery, columns = _without_copies(gallery)
    half_squares = np.sum(np.square(gallery, dtype="float64"), axis=1) / 2
    half_squares = ops.convert_to_tensor(half_squares.astype(gallery.dtype))
    gallery = ops.convert_to_tensor(np.ascontiguousarray(gallery.T))
    order = np.argsort(num_positives, kind="stable")
    order = order[num_positives[order] > 0]
    for start in range(0, len(order), block_size):
        block = order[start : start + block_size]
        length = max(at_least, int(num_positives[block].max())) + remove_self
        length = min(_power_of_two(length), num_items)
        # Padded to one shape: a compiling backend compiles once per length.
        rows = np.resize(block, block_size)
        with full_precision_matmul():
            nearness = ops.matmul(ops.convert_to_tensor(queries[rows]), gallery)
        nearness = nearness - half_squares
        if columns is not None:
            nearness = ops.take(nearness, columns, axis=1)
        # Both backends give the lower position first among equals.
        _, neighbors = ops.top_k(nearness, length)
        neighbors = ops.convert_to_numpy(neighbors)[: len(block)]
        if remove_self:
            neighbors = _without(neighbors, block)
        yield block, neighbors


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
    return gallery[first], columns.reshape(-1).astype("int32")


def _without(neighbors, own):
    """Removes each row's own index; a row without it loses its last entry."""
    is_after = np.cumsum(neighbors == own[:, None], axis=1)[:, :-1] > 0
    return np.where(is_after, neighbors[:, 1:], neighbors[:, :-1])


def _power_of_two(number):
    return 1 << (number - 1).bit_length()


def checked_block_size(block_size, num_items):
    """Returns how many queries are ranked at once; `None` means 64 MB."""
    if block_size is None:
        return max(1, min(1024, BLOCK_NUMBERS // num_items))
    check_count(block_size=block_size)
    return int(block_size)
