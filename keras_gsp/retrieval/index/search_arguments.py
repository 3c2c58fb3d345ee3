"""What a search is asked, checked."""

import numpy as np
from keras import ops

from keras_gsp.embeddings.labelled_embeddings import checked_embeddings


def checked_queries(queries, gallery):
    """Returns queries as (queries, size), float32, refusing a wrong size."""
    check_filled(gallery)
    if not isinstance(queries, np.ndarray):
        queries = ops.convert_to_numpy(queries)
    queries = queries[None] if queries.ndim == 1 else queries
    queries = checked_embeddings(queries, "queries").astype("float32")
    if queries.shape[1] != gallery.embedding_size:
        raise ValueError(
            "`queries` must have the size of the gallery's embeddings, "
            f"{gallery.embedding_size}. Received: shape {queries.shape}."
        )
    return queries


def check_filled(gallery):
    """Raises `RuntimeError` for an index that nothing was added to."""
    if not len(gallery):
        raise RuntimeError(
            "The index must hold at least one item. Received: an empty "
            "gallery; call `add` first."
        )


def excluded_positions(exclude_ids, gallery, count):
    """Returns the position each query must not return, -1 for none."""
    if exclude_ids is None:
        return np.full(count, -1)
    if isinstance(exclude_ids, str | bytes) or np.ndim(exclude_ids) == 0:
        exclude_ids = [exclude_ids]
    if len(exclude_ids) != count:
        raise ValueError(
            "`exclude_ids` must hold one id for each query. "
            f"Received: {len(exclude_ids)} ids for {count} queries."
        )
    return gallery.positions_of(exclude_ids)
