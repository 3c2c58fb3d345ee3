"""How much an approximate index misses, measured on held-out queries."""

import numpy as np

from keras_gsp.embeddings.labelled_embeddings import class_codes
from keras_gsp.metrics.ranked_scores import ranked_scores


def index_certificate(exact, approximate, labels, gallery_labels, k):
    """Compares approximate with exact search.

    Args:
        exact: indices (queries, depth) of the true neighbours.
        approximate: indices (queries, depth) of those found, -1 for none.
        labels: (queries,), classes of the queries.
        gallery_labels: (items,), classes of the gallery.
        k: number of neighbours of which the recall is measured.

    Returns:
        A dict: `k`, `num_queries`, `recall` (share of the k true neighbours
        among the k found) and `map_at_r_exact`, `map_at_r_approximate`, over
        the queries with a positive; `None` where there is none.
    """
    found = [
        len(np.intersect1d(true, near)) / len(true)
        for true, near in zip(exact[:, :k], approximate[:, :k], strict=True)
    ]
    codes, gallery_codes = class_codes(
        labels, len(exact), gallery_labels, len(gallery_labels)
    )
    scores = [
        _map_at_r(indices, codes, gallery_codes)
        for indices in (exact, approximate)
    ]
    return {
        "k": k,
        "num_queries": len(exact),
        "recall": float(np.mean(found)),
        "map_at_r_exact": scores[0],
        "map_at_r_approximate": scores[1],
    }


def ranking_depth(labels, gallery_labels, k):
    """Returns how deep a ranking must go for recall@k and MAP@R.

    Args:
        labels: (queries,), classes of the queries.
        gallery_labels: (items,), classes of the gallery.
        k: number of neighbours of which the recall is measured.

    Returns:
        The largest of k and of the queries' numbers of positives.
    """
    codes, gallery_codes = class_codes(
        labels, len(labels), gallery_labels, len(gallery_labels)
    )
    return max(k, int(_num_positives(codes, gallery_codes).max()))


def _num_positives(codes, gallery_codes):
    return np.bincount(gallery_codes, minlength=codes.max() + 1)[codes]


def _map_at_r(indices, codes, gallery_codes):
    """MAP@R of rankings in which -1 stands for a neighbour not found."""
    num_positives = _num_positives(codes, gallery_codes)
    is_scored = num_positives > 0
    if not is_scored.any():
        return None
    is_correct = gallery_codes[np.maximum(indices, 0)] == codes[:, None]
    queries, ranks = np.nonzero(is_correct & (indices >= 0))
    scores = ranked_scores(queries, ranks + 1, num_positives)["map_at_r"]
    return float(scores[is_scored].mean())
