"""What a search returns; its merging by thing and by group."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Neighbors:
    """The nearest gallery items of each query, nearest first.

    Arrays are (queries, k), k at most the number of items. Row i holds
    `counts[i]` neighbors and padding after them: index -1, distance infinity,
    id and label -1 or the empty string.

    Attributes:
        ids: ids of the gallery items.
        labels: their labels.
        distances: Euclidean distances, float32.
        indices: positions in the gallery; -1 for `MilvusIndex`.
        counts: (queries,), number of neighbors found.
        is_match: whether each is within the index's threshold `match`; `None`
            without one.
        groups: values of the column `group_by`, all different in a row;
            `None` without one.
        group_counts: number of items of the group among all items up to the
            last neighbor of the row, at least 1; `None` without `group_by`.
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
    """What stands for no id or label: the empty string or -1.

    In uint64, -1 is the largest number.
    """
    return np.array("" if values.dtype.kind == "U" else -1).astype(values.dtype)


def nearest_of(parts: list[Any], k: int) -> list[np.ndarray]:
    """Returns the k nearest of several answers, the earlier of equals.

    Each is a tuple of arrays (queries, any), distances first.
    """
    both = [np.concatenate(part, axis=1) for part in zip(*parts, strict=True)]
    order = np.argsort(both[0], axis=1, kind="stable")[:, :k]
    return [np.take_along_axis(part, order, axis=1) for part in both]


def nearest_to_any(found: Neighbors, size: int, k: int) -> Neighbors:
    """Merges the answers of each `size` queries into one."""
    rows = len(found) // size
    both = dataclasses.replace(found, counts=found.indices)  # same shape
    both = _mapped(lambda all_: all_.reshape(rows, -1), both)
    codes = _codes(both.ids)
    # Equally near: by position in the gallery, in Milvus by id.
    order = np.lexsort((codes, both.indices, both.distances), axis=1)
    both = _mapped(lambda all_: np.take_along_axis(all_, order, axis=1), both)
    is_kept = _is_first(np.take_along_axis(codes, order, axis=1))
    k = min(k, found.ids.shape[1])
    return _kept(both, is_kept & np.isfinite(both.distances), k)


def nearest_groups(
    search: Callable[[np.ndarray, int], Neighbors],
    num_queries: int,
    k: int,
    most: int,
) -> Neighbors:
    """Returns the nearest item of each of k groups.

    `search(rows, asked)` answers some of the queries with `groups`. More and
    more items are asked for, at most `most`, until there are k groups.
    """
    k = min(k, most)
    left, asked = np.arange(num_queries), min(4 * k, most)
    rows, answers = [], []
    while len(left):
        found = search(left, asked)
        answer = _first_of_groups(found, k)
        is_done = (answer.counts == k) | (found.counts < asked)
        is_done |= asked >= most
        rows.append(left[is_done])
        answers.append(_mapped(lambda all_, at=is_done: all_[at], answer))
        left, asked = left[~is_done], min(4 * asked, most)
    order = np.argsort(np.concatenate(rows))
    return _mapped(lambda *parts: np.concatenate(parts)[order], *answers)


def _first_of_groups(found, k):
    """The first item of each group, and the sizes of the groups."""
    is_found = np.isfinite(found.distances)
    codes = _codes(found.groups)
    is_first = is_found & _is_first(np.where(is_found, codes, -1))
    answer = _kept(found, is_first, k)
    # Items up to the last one that is shown.
    num_firsts = np.cumsum(is_first, axis=1)
    last = np.argmax(num_firsts == answer.counts[:, None], axis=1)
    is_hit = is_found & (np.arange(codes.shape[1]) <= last[:, None])
    keys = codes + np.arange(len(found))[:, None] * (codes.max() + 1)
    values, sizes = np.unique(keys[is_hit], return_counts=True)
    shown = _order(is_first, k)
    at = np.searchsorted(values, np.take_along_axis(keys, shown, axis=1))
    sizes = np.append(sizes, 0)[np.minimum(at, len(sizes))]
    sizes = np.where(np.isfinite(answer.distances), sizes, 0)
    return dataclasses.replace(answer, group_counts=sizes)


def _kept(found, is_kept, k):
    """The first k kept items of each row, padded."""
    order, counts = _order(is_kept, k), np.minimum(is_kept.sum(axis=1), k)
    is_there = np.arange(k) < counts[:, None]

    def taken(values):
        values = np.take_along_axis(values, order, axis=1)
        padding = False if values.dtype == bool else padding_of(values)
        return np.where(is_there, values, padding)

    answer = _mapped(taken, dataclasses.replace(found, counts=found.indices))
    distances = np.where(is_there, answer.distances, np.float32(np.inf))
    return dataclasses.replace(answer, counts=counts, distances=distances)


def _order(is_kept, k):
    """Columns of the first k kept items, others after them, (rows, k)."""
    order = np.argsort(~is_kept, axis=1, kind="stable")[:, :k]
    return np.pad(order, ((0, 0), (0, k - order.shape[1])))


def _codes(values):
    _, codes = np.unique(values, return_inverse=True)
    return codes.reshape(values.shape)


def _is_first(codes):
    """Whether a code comes for the first time in its row."""
    order = np.argsort(codes, axis=1, kind="stable")
    in_order = np.take_along_axis(codes, order, axis=1)
    is_new = np.ones(codes.shape, bool)
    is_new[:, 1:] = in_order[:, 1:] != in_order[:, :-1]
    is_first = np.empty(codes.shape, bool)
    np.put_along_axis(is_first, order, is_new, axis=1)
    return is_first


def _mapped(function, *answers):
    """Neighbors of a function of each array."""
    fields = [one.name for one in dataclasses.fields(Neighbors)]
    arrays: dict[str, list[Any]] = {
        n: [getattr(one, n) for one in answers] for n in fields
    }
    mapped: dict[str, Any] = {
        n: a[0] if a[0] is None else function(*a) for n, a in arrays.items()
    }
    return Neighbors(**mapped)
