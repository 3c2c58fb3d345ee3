"""Searches of held-out classes in a gallery that does not hold them."""

import tempfile
from typing import Any, NamedTuple

import numpy as np

from keras_gsp.retrieval.index.columns import blocks_of

# Neighbors that a search is asked for.
LOOKED_AT = 50
# At most so many until the item of the right class is among them.
MOST_LOOKED_AT = 16_384
# Share of the true neighbors that an engine which cannot be copied must find.
LEAST_RECALL = 0.98


class HeldOutSearches(NamedTuple):
    """Distances that searches in a gallery return, arrays (queries,).

    The first three are of the images with another one of their class: their
    classes, the distance to the nearest item of the class (infinity if the
    search misses it), and that to the nearest of any class. The last is of all
    images: the distance to the nearest item of a gallery without the class.
    """

    classes: np.ndarray
    right: np.ndarray
    nearest_known: np.ndarray
    nearest_unknown: np.ndarray


def held_out_searches(
    gallery: Any, embeddings: Any, labels: np.ndarray, seed: int = 0
) -> HeldOutSearches:
    """Searches a gallery as served; see `RetrievalGuarantee.calibrate`."""
    gallery._check_filled()
    embeddings = np.asarray(embeddings, "float32")
    blocks = [gallery.items(some)[1] for some in blocks_of(gallery.ids())]
    known, sizes = np.unique(np.concatenate(blocks), return_counts=True)
    if len(known) < 2:
        raise ValueError(
            "`gallery` must have items of two classes or more, with labels. "
            f"Received: {len(known)}, {known.tolist()}."
        )
    shared = np.intersect1d(known, labels)
    if len(shared):
        raise ValueError(
            "The held-out classes must not be in the gallery. Received: "
            f"{len(shared)} that are, for example {shared[0].item()!r}."
        )
    rng = np.random.default_rng(seed)
    names, codes, counts = np.unique(
        labels, return_inverse=True, return_counts=True
    )
    right, farthest = np.full((2, len(labels)), np.inf)
    standing: list[Any] = [()] * len(labels)
    shown = rng.choice(sizes, len(labels))
    for code in np.flatnonzero(counts > 1):
        members = np.flatnonzero(codes == code)
        own = embeddings[members].astype("float64")
        for row, place in zip(own, members, strict=True):
            others = rng.permutation(members[members != place])
            standing[place] = others[: shown[place]]
            near = own[np.searchsorted(members, standing[place])] - row
            away = np.linalg.norm(near, axis=1)
            right[place], farthest[place] = away.min(), away.max()
    found = gallery.search(embeddings, LOOKED_AT)
    if hasattr(gallery, "gallery") and gallery.kind != "exact":
        right = _as_served(gallery, embeddings, labels, standing, farthest)
    elif gallery.kind != "exact":
        _check_recall(gallery, embeddings, found)
    left = rng.choice(known, len(labels))[:, None]
    far = np.where(found.labels == left, np.inf, found.distances).min(axis=1)
    is_query = counts[codes] > 1
    return HeldOutSearches(
        names[codes][is_query],
        right[is_query],
        np.minimum(right, far)[is_query],
        found.distances[:, 0],
    )


def _as_served(gallery, embeddings, labels, standing, farthest):
    """Distances to the nearest item of the class that the engine finds."""
    some = gallery.items(gallery.ids()[:1])
    count = len(labels)
    ids = np.array([f"held out {i}" for i in range(count)])
    if some[2].dtype.kind != "U":
        ids = gallery.ids().max() + 1 + np.arange(count)
    columns = {k: np.repeat(v, count) for k, v in some[3].items()}
    with tempfile.TemporaryDirectory() as folder:
        gallery.save(f"{folder}/copy")
        copy = type(gallery).load(f"{folder}/copy")
    copy.upsert(embeddings, labels, ids, columns)
    served, rows, k = np.full(count, np.inf), np.arange(count), 2 * LOOKED_AT
    most = min(len(copy) - 1, MOST_LOOKED_AT)
    while len(rows):
        k, cut = min(k, most), []
        for some in blocks_of(rows, max(1, 10**7 // k)):
            own = list(ids[some])
            found = copy.search(embeddings[some], k, exclude_ids=own)
            for row, near, at in zip(
                some, found.ids, found.distances, strict=True
            ):
                is_right = np.isin(near, ids[np.array(standing[row], int)])
                served[row] = at[is_right].min(initial=np.inf)
                # The list may end before an item of the class.
                if not is_right.any() and at[-1] <= farthest[row] < np.inf:
                    cut.append(row)
        if k == most:
            break
        rows, k = np.array(cut, int), 4 * k
    return served


def _check_recall(gallery, embeddings, found):
    exact = gallery.search_exactly(embeddings, LOOKED_AT)
    pairs = zip(exact.ids, found.ids, strict=True)
    recall = np.mean([np.isin(true, near).mean() for true, near in pairs])
    if recall < LEAST_RECALL:
        raise ValueError(
            f"`gallery` must find {LEAST_RECALL} of the true neighbors to be "
            f"calibrated. Received: {recall:.3f}; let it search more widely."
        )
