"""What a search is asked, checked."""

from typing import Any

import numpy as np
from keras import ops

from keras_gsp.embeddings.labelled_embeddings import checked_embeddings
from keras_gsp.retrieval.index.gallery import Gallery


def checked_queries(queries: Any, gallery: Gallery) -> np.ndarray:
    """Returns queries as (queries, size), float32, refusing a wrong size."""
    check_filled(gallery)
    return queries_of_size(queries, gallery.embedding_size)


def queries_of_size(queries: Any, size: int | None) -> np.ndarray:
    """Returns queries as (queries, size), float32.

    Args:
        queries: (queries, size), or (size,) for a single one.
        size: of the gallery's embeddings.

    Raises:
        ValueError: NaN or infinity, or another size.
    """
    if not isinstance(queries, np.ndarray):
        queries = ops.convert_to_numpy(queries)
    queries = queries[None] if queries.ndim == 1 else queries
    queries = checked_embeddings(queries, "queries").astype("float32")
    if queries.shape[1] != size:
        raise ValueError(
            "`queries` must have the size of the gallery's embeddings, "
            f"{size}. Received: shape {queries.shape}."
        )
    return queries


def check_filled(gallery: Gallery) -> None:
    """Raises `RuntimeError` for an index that nothing was added to."""
    if not len(gallery):
        raise RuntimeError(
            "The index must hold at least one item. Received: an empty "
            "gallery; call `add` first."
        )


def excluded_positions(
    exclude_ids: Any, gallery: Gallery, count: int
) -> np.ndarray:
    """Returns the position each query must not return, -2 for none."""
    ids = one_id_each(exclude_ids, count)
    positions = gallery.positions_of(ids)
    return np.where(positions < 0, -2, positions)


def one_id_each(exclude_ids: Any, count: int) -> list[Any]:
    """Returns the id that each query must not return, `None` for none.

    Args:
        exclude_ids: one id for each query, or `None`.
        count: number of queries.

    Raises:
        ValueError: another number of ids than of queries.
    """
    if exclude_ids is None:
        return [None] * count
    if isinstance(exclude_ids, str | bytes) or np.ndim(exclude_ids) == 0:
        exclude_ids = [exclude_ids]
    if len(exclude_ids) != count:
        raise ValueError(
            "`exclude_ids` must hold one id for each query. "
            f"Received: {len(exclude_ids)} ids for {count} queries."
        )
    return list(exclude_ids)
