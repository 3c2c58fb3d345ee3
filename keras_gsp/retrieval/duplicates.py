"""Groups of near copies in a collection, without labels."""

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from keras_gsp._checks import check_interval
from keras_gsp._embeddings import checked_embeddings
from keras_gsp.data.decoding import image_size
from keras_gsp.retrieval.index.exact import ExactIndex

# Neighbors of an item: their last one tells how dense its surroundings are.
NEIGHBORS = 20
# Largest distance of copies as a share of that, on photographs of birds.
LARGEST_SHARE = 0.6
# Smallest distance to the last neighbor that counts, as a share of the median.
LEAST_RADIUS = 0.1


@dataclasses.dataclass(frozen=True)
class DuplicateGroup:
    """Near copies of one picture; iterates over their ids.

    Attributes:
        ids: of the items, the largest picture first: the one to keep.
        sizes: height and width in pixels of each, `None` where no file is.
        distances: of each to the first.
    """

    ids: tuple[Any, ...]
    sizes: tuple[tuple[int, int] | None, ...]
    distances: tuple[float, ...]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.ids)

    def __len__(self) -> int:
        return len(self.ids)


def duplicates(
    retriever_or_rows: Any, distance: float | None = None
) -> list[DuplicateGroup]:
    r"""Finds groups of near copies: other sizes, qualities and crops.

    Without a `distance`, two items are copies if their distance is below a
    share s of the geometric mean of their distances to their 20th neighbors
    (of at most half of the items; of each group, one item counts). Of n items
    that are spread evenly in D dimensions around each, fewer than one pair is
    so near by chance if

    .. math:: s = \min\left(0.6, (2 / 19 n)^{1 / D}\right), \qquad
              D = \log 2 \,/\, \mathrm{median} \log (d_{20} / d_{10})

    with the distances :math:`d_k` to the k-th neighbor. A copy of a copy is in
    one group with both.

    Args:
        retriever_or_rows: a `Retriever`, an index, or embeddings (items, size),
            whose ids are their positions.
        distance: largest Euclidean distance of two copies. `None`: by the rule
            above.

    Returns:
        A list of `DuplicateGroup`, nearest copies first.

    Raises:
        ValueError: fewer than two items, embeddings that are not finite, or a
            negative distance.

    Example:

    ```python
    rows = np.random.default_rng(0).normal(size=(100, 16))
    rows[7] = rows[3] + 0.01
    (group,) = gsp.retrieval.duplicates(rows)
    assert set(group) == {3, 7}
    ```
    """
    if distance is not None:
        check_interval("[0, inf)", distance=distance)
    index = getattr(retriever_or_rows, "index", retriever_or_rows)
    if hasattr(index, "items") and hasattr(index, "ids"):
        rows, _, ids, _ = index.items(index.ids())
    else:
        rows = checked_embeddings(index)
        ids = np.arange(len(rows))
    pairs, group = copies(rows, distance)
    nearest_first = dict.fromkeys(group[pairs[:, 0]].tolist())
    return [
        _described(np.flatnonzero(group == one), rows, ids, retriever_or_rows)
        for one in nearest_first
    ]


def copies(
    rows: np.ndarray, distance: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Finds pairs and groups of copies; see `duplicates`.

    Returns positions (pairs, 2), nearest first for their surroundings, and the
    lowest position in the group of each item, (items,).
    """
    count = len(rows)
    if count < 2:
        raise ValueError(
            f"There must be at least two items. Received: {count}."
        )
    rows, group = np.asarray(rows, "float64"), np.arange(count)
    last = min(NEIGHBORS, max((count - 1) // 2, 1))
    near = ExactIndex(rows).search(rows, last, exclude_ids=group).indices
    distances = np.linalg.norm(rows[near] - rows[:, None], axis=2)
    while True:
        limits: Any = distance
        if distance is None:
            radius, share = _surroundings(rows, group, last)
            limits = share * np.sqrt(radius[:, None] * radius[near])
        one, column = np.nonzero(distances <= limits)
        pairs = np.stack([one, near[one, column]], axis=1)
        merged = connected(pairs, count)
        # Copies make surroundings look denser than they are.
        if distance is not None or len({*merged}) >= len({*group}):
            break
        group = merged
    nearness = (distances / np.maximum(limits, 1e-300))[one, column]
    pairs, kept = np.unique(np.sort(pairs, axis=1), axis=0, return_index=True)
    return pairs[np.argsort(nearness[kept], kind="stable")], merged


def _surroundings(rows, group, last):
    """Distance of each item to its last neighbor, and the share of it.

    One item of each group counts, and none of the own group.
    """
    items = np.unique(group)
    last = min(last, max(len(items) - 1, 1))
    index = ExactIndex(rows[items], ids=items)
    near = index.search(rows, last, exclude_ids=group).distances
    near = np.where(np.isfinite(near), near, 0.0).astype("float64")
    middle = -(-last // 2)
    radii = np.maximum(near[items][:, [middle - 1, last - 1]], 1e-300)
    growth = float(np.median(np.log(radii[:, 1] / radii[:, 0])))
    share = LARGEST_SHARE
    if middle < last and growth > 0:
        dimension = math.log(last / middle) / growth
        chance = (2 / ((last - 1) * len(items))) ** (1 / dimension)
        share = min(share, chance)
    # Many copies hide what is around them.
    return np.maximum(near[:, -1], LEAST_RADIUS * np.median(near[:, -1])), share


def connected(pairs: np.ndarray, count: int) -> np.ndarray:
    """Returns the lowest position that each item is connected with, (count,).

    `pairs` are positions, (pairs, 2).
    """
    group = np.arange(count)
    while True:
        lowest = group.copy()
        for one, other in (pairs.T, pairs.T[::-1]):
            np.minimum.at(lowest, one, group[other])
        if (lowest == group).all():
            return group
        group = lowest


def _described(positions, rows, ids, retriever):
    """The group of some items, the largest picture first."""
    names = ids[positions].tolist()
    path = getattr(retriever, "path", lambda name: None)
    sizes = [_size(path(name)) for name in names]
    pixels = [0 if size is None else -math.prod(size) for size in sizes]
    order = np.argsort(pixels, kind="stable")
    members = rows[positions[order]].astype("float64")
    distances = np.linalg.norm(members - members[0], axis=1)
    return DuplicateGroup(
        tuple(names[i] for i in order),
        tuple(sizes[i] for i in order),
        tuple(distances.tolist()),
    )


def _size(path: Path | None):
    try:
        return None if path is None else image_size(path.read_bytes())
    except (OSError, ValueError):
        return None
