"""What a search returns; its merging by thing and by group."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

# Candidates of a diverse search for each neighbor wanted.
OVERSAMPLING = 10
# How far unliked examples push a query away, in multiples of their distance.
# In five pages of ten, marked, of birds and emoji, 1 and 4 find about as much,
# distances to the nearest example find less.
UNLIKE_SHARE = 2.0


@dataclasses.dataclass(frozen=True)
class Neighbors:
    """The nearest gallery items of each query, nearest first.

    Arrays are (queries, k), k at most the number of items. Row i holds
    `counts[i]` neighbors and padding after them: index -1, distance infinity,
    id and label -1 or the empty string. With an `augmentation` of the index
    the order is that of augmented rows: distances, which are those of the
    original ones, need not rise.

    Attributes:
        ids: ids of the gallery items; `labels`: their labels.
        distances: Euclidean distances, float32.
        indices: positions in the gallery; -1 for `MilvusIndex`.
        counts: (queries,), number of neighbors found.
        is_match: whether each is within the index's threshold `match`.
        groups: values of the column `group_by`, all different in a row.
        group_counts: number of items of the group among all items up to the
            last neighbor of the row, at least 1.
    """

    ids: np.ndarray
    labels: np.ndarray
    distances: np.ndarray
    indices: np.ndarray
    counts: np.ndarray
    is_match: np.ndarray | None = None
    groups: np.ndarray | None = None
    group_counts: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.counts)


def padding_of(values: np.ndarray) -> np.ndarray:
    """What stands for no id or label: "" or -1."""
    is_string = values.dtype.kind in "OU"
    return np.array("" if is_string else -1).astype(values.dtype)


def nearest_to_any(found: Neighbors, size: int, k: int) -> Neighbors:
    """Merges the answers of each `size` queries into one."""
    rows, k = len(found) // size, min(k, found.ids.shape[1])
    found = dataclasses.replace(found, counts=found.indices)  # same shape
    both = _mapped(lambda values: values.reshape(rows, -1), found)
    # Equally near: by position in the gallery, in Milvus by id.
    codes = np.unique(both.ids, return_inverse=True)[1].reshape(rows, -1)
    order = np.lexsort((codes, both.indices, both.distances), axis=1)
    both = _mapped(lambda all_: np.take_along_axis(all_, order, axis=1), both)
    counts = np.isfinite(both.distances).sum(axis=1)
    return _taken(both, _first_columns(both.ids, counts, k))


def nearest_groups(
    search: Callable[[np.ndarray, int], Neighbors],
    rows: np.ndarray,
    k: int,
    most: int,
    asked: int | None = None,
) -> Neighbors:
    """Returns the nearest item of each of k groups.

    `search(rows, asked)` answers some of the queries with `groups`. More and
    more items are asked for, at most `most`, until there are k groups.
    """
    k, asked = min(k, most), min(asked or 4 * k, most)
    found = search(rows, asked)
    groups = np.asarray(found.groups)
    columns = _first_columns(groups, found.counts, k)
    answer, sizes = _taken(found, columns), np.zeros(columns.shape, int)
    for row, own in enumerate(columns):
        hits = groups[row, : own.max() + 1]  # up to the last one shown
        sizes[row] = (hits == groups[row, own, None]).sum(axis=1)
    sizes[columns < 0] = 0
    answer = dataclasses.replace(answer, group_counts=sizes)
    is_left = (answer.counts < k) & (found.counts == asked) & (asked < most)
    if not (left := np.flatnonzero(is_left)).size:
        return answer
    rest = nearest_groups(search, rows[left], k, most, 4 * asked)
    order = np.arange(len(rows))
    order[left] = len(rows) + np.arange(len(left))
    return _mapped(lambda *both: np.concatenate(both)[order], answer, rest)


def no_farther(neighbors: Neighbors, within: float) -> Neighbors:
    """Leaves out the neighbors beyond a distance."""
    is_near = neighbors.distances <= within
    return _taken(neighbors, _columns_of(is_near, is_near.shape[1]))


def without(neighbors: Neighbors, ids: list[Any], k: int) -> Neighbors:
    """Returns the first k neighbors with other ids than these."""
    is_other = ~np.isin(neighbors.ids, np.array(ids))
    is_other &= np.isfinite(neighbors.distances)
    return _taken(neighbors, _columns_of(is_other, k))


def moved_query(liked: np.ndarray, unliked: np.ndarray) -> np.ndarray:
    """The mean of what is liked, moved away from that of what is not.

    `l + SHARE (l - u)` for means l and u; on a sphere, if the examples are on
    one, (1, size).
    """
    mean = liked.mean(axis=0, keepdims=True, dtype="float64")
    if len(unliked):
        mean += UNLIKE_SHARE * (mean - unliked.mean(axis=0, dtype="float64"))
    radii = np.linalg.norm(np.concatenate([liked, unliked]), axis=1)
    length = np.linalg.norm(mean)
    if length and np.ptp(radii) <= 1e-3 * radii.max():
        mean *= radii.mean() / length
    return mean


def diverse(
    neighbors: Neighbors,
    items: Callable[[Any], Any],
    k: int,
    diversity: float,
) -> Neighbors:
    """Returns k of the neighbors of each query by maximal marginal relevance.

    `items(ids)` are embeddings, labels, ids and attributes of those known.

    Reference: Carbonell and Goldstein, "The use of MMR", SIGIR 1998, with
    distances in place of similarities.
    """
    k = min(k, neighbors.ids.shape[1])
    columns = np.full((len(neighbors), k), -1)
    for row, count in enumerate(neighbors.counts):
        ids = neighbors.ids[row, :count]
        rows, _, known, _ = items(ids)
        # Another thread may have deleted some.
        left = np.flatnonzero(np.isin(ids, known))
        far = -(1 - diversity) * neighbors.distances[row, left]
        gaps = np.full(len(left), np.inf)
        for rank in range(min(k, len(left))):
            scores = far if rank == 0 else far + diversity * gaps
            best = int(np.argmax(scores)) if rank else 0
            columns[row, rank] = left[best]
            away = np.linalg.norm(rows - rows[best], axis=1)
            gaps = np.minimum(gaps, away)
            far[best] = -np.inf
    return _taken(neighbors, columns)


def _columns_of(is_kept, k):
    """The first k columns to keep of each row, (rows, k); -1 after them."""
    order = np.argsort(~is_kept, axis=1, kind="stable")[:, :k]
    return np.where(np.take_along_axis(is_kept, order, axis=1), order, -1)


def _first_columns(values, counts, k):
    """Where k values come first in each row, (rows, k); -1 after them."""
    columns = np.full((len(values), k), -1)
    for row, own, count in zip(columns, values, counts, strict=True):
        first = np.sort(np.unique(own[:count], return_index=True)[1])[:k]
        row[: len(first)] = first
    return columns


def _taken(found, columns):
    """The items in some columns of each row; none for a column of -1."""
    is_there = columns >= 0

    def taken(values):
        values = np.take_along_axis(values, columns, axis=1)
        padding = False if values.dtype == bool else padding_of(values)
        return np.where(is_there, values, padding)

    answer = _mapped(taken, dataclasses.replace(found, counts=found.indices))
    distances = np.where(is_there, answer.distances, np.float32(np.inf))
    counts = is_there.sum(axis=1)
    return dataclasses.replace(answer, counts=counts, distances=distances)


def _mapped(function, *answers):
    """Neighbors of a function of each array."""
    mapped: dict[str, Any] = {}
    for name, first in vars(answers[0]).items():
        values = [getattr(one, name) for one in answers]
        mapped[name] = None if first is None else function(*values)
    return Neighbors(**mapped)
