"""k-reciprocal re-ranking of embeddings.

| symbol | name | meaning |
| --- | --- | --- |
| N(p, k) | `nearest` | the k nearest items of p among all, p itself first |
| R(p, k) | `reciprocal` | items of N(p, k) that have p among their k nearest |
| V_p | `weights` | exp(-d(p, g)) for g in p's set, summing to 1 |
| d_J | | 1 - sum min(V_p, V_g) / sum max(V_p, V_g) |
"""

from typing import Any

import numpy as np

from keras_gsp._checks import check_count, check_same_size
from keras_gsp._embeddings import checked_embeddings
from keras_gsp.ops.neighbors import array_items

# Share of the plain distance, as in the paper.
DISTANCE_WEIGHT = 0.3


def k_reciprocal(
    embeddings: Any,
    gallery_embeddings: Any = None,
    *,
    num_neighbors: int = 20,
    num_expanded: int = 6,
) -> np.ndarray:
    """Computes k-reciprocal distances, for re-ranking by common neighbors.

    Two items are likely of one class if each is among the nearest of the
    other and both have the same nearest items:

    ```
    R*(p)  = R(p, k), and R(g, k / 2) of its members g that overlap it by 2/3
    V_p    = exp(-d(p, g)) on R*(p), summing to 1, then averaged over N(p, k2)
    result = 0.7 d_J + 0.3 d
    ```

    with d the squared distance of l2-normalized embeddings over the largest
    one from p. It depends on all queries and gallery items: report such a
    score beside the plain one.

    Args:
        embeddings: (queries, size), finite, no row of zeros.
        gallery_embeddings: (gallery, size), the same. `None`: the queries are
            their own gallery.
        num_neighbors: k, at least 1.
        num_expanded: k2, at least 1, which averages nothing.

    Returns:
        (queries, gallery), float32; smaller is nearer.

    Raises:
        ValueError: embeddings that are not finite or of different sizes, a
            row of zeros, or a number out of its range.

    Example:

    ```python
    labels = np.repeat(np.arange(8), 6)
    rng = np.random.default_rng(0)
    embeddings = np.eye(8)[labels] + 0.3 * rng.normal(size=(48, 8))
    distances = gsp.metrics.k_reciprocal(embeddings, num_neighbors=6)
    assert distances.shape == (48, 48)
    ```

    Reference: Zhong et al., "Re-ranking person re-identification with
    k-reciprocal encoding", 2017, equations (2) to (12).
    """
    check_count(num_neighbors=num_neighbors, num_expanded=num_expanded)
    queries = checked_embeddings(embeddings, "embeddings")
    points = unit_rows(queries, "embeddings")
    first = 0
    if gallery_embeddings is not None:
        gallery = checked_embeddings(gallery_embeddings, "gallery_embeddings")
        names = ("embeddings", "gallery_embeddings")
        check_same_size(queries, gallery, names, axis=1)
        gallery = unit_rows(gallery, "gallery_embeddings")
        points, first = np.concatenate([points, gallery]), len(queries)
    weights = _encoding(points, num_neighbors, num_expanded)
    # Items by member: a minimum is 0 for all others.
    holders: list[tuple[list, list]] = [([], []) for _ in points]
    for item, row in enumerate(weights):
        for member, weight in row.items():
            holders[member][0].append(item)
            holders[member][1].append(weight)
    inverted = [(np.array(i, "int64"), np.array(w)) for i, w in holders]
    rows = []
    for query, row in enumerate(weights[: len(queries)]):
        common = np.zeros(len(points))
        for member, weight in row.items():
            items, values = inverted[member]
            common[items] += np.minimum(weight, values)
        jaccard = 1 - common / (2 - common)
        distances = _squared_distances(points[query], points)
        mixed = (1 - DISTANCE_WEIGHT) * jaccard + DISTANCE_WEIGHT * distances
        rows.append(mixed[first:].astype("float32"))
    return np.stack(rows)


def _encoding(points, num_neighbors, num_expanded):
    """Returns V of every item, a dict from member to weight."""
    depth = max(num_neighbors, num_expanded - 1) + 1
    nearest = array_items(points)(points, min(depth, len(points)))
    half = max(1, int(np.around(num_neighbors / 2)))
    reciprocal = _reciprocal(nearest, num_neighbors + 1)
    of_half = _reciprocal(nearest, half + 1)
    encoded = []
    for item, found in enumerate(reciprocal):
        members = set(found)
        for member in found:
            others = of_half[member]
            if len(others & found) > 2 / 3 * len(others):
                members |= others
        chosen = np.array(sorted(members), "int64")
        weights = np.exp(-_squared_distances(points[item], points)[chosen])
        weights /= weights.sum()
        encoded.append(dict(zip(chosen.tolist(), weights, strict=True)))
    if num_expanded == 1:
        return encoded
    averaged = []
    for found in nearest[:, :num_expanded].tolist():
        mean: dict[int, float] = {}
        for item in found:
            for member, weight in encoded[item].items():
                mean[member] = mean.get(member, 0.0) + weight / len(found)
        averaged.append(mean)
    return averaged


def _reciprocal(nearest, depth):
    """Returns for each item those of its `depth` nearest that have it too."""
    near = [set(found) for found in nearest[:, :depth].tolist()]
    return [
        {other for other in found if item in near[other]}
        for item, found in enumerate(near)
    ]


def _squared_distances(point, points):
    """Returns distances from one item to all, divided by the largest."""
    distances = np.maximum(2 - 2 * (points @ point).astype("float64"), 0)
    return distances / max(float(distances.max()), 1e-12)


def unit_rows(points: np.ndarray, name: str) -> np.ndarray:
    """Scales rows to length 1; `ValueError` for a row of zeros."""
    largest = np.abs(points).max(axis=1, keepdims=True)
    if not largest.all():
        raise ValueError(
            f"`{name}` must have a direction. Received: "
            f"{int((largest == 0).sum())} rows of zeros."
        )
    points = points / largest
    return points / np.linalg.norm(points, axis=1, keepdims=True)
