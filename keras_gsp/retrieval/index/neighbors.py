"""What a search returns."""

import dataclasses

import numpy as np

from keras_gsp.retrieval.index.gallery import Gallery


@dataclasses.dataclass(frozen=True)
class Neighbors:
    """The nearest gallery items of each query, nearest first.

    All arrays are (queries, k), with k at most the number of gallery items.
    Row i holds `counts[i]` neighbours; what stands behind them is padding:
    index -1, distance infinity, id and label -1 or the empty string.

    Attributes:
        ids: ids of the gallery items.
        labels: their labels.
        distances: Euclidean distances, float32.
        indices: positions in the gallery; -1 throughout where the gallery is
            kept by an engine that has none.
        counts: (queries,), number of neighbours found.
    """

    ids: np.ndarray
    labels: np.ndarray
    distances: np.ndarray
    indices: np.ndarray
    counts: np.ndarray

    def __len__(self) -> int:
        return len(self.counts)


def neighbors_at(
    gallery: Gallery, indices: np.ndarray, distances: np.ndarray
) -> Neighbors:
    """Looks ids and labels up; an index of -1 stands for no neighbour."""
    is_missing = indices < 0

    def looked_up(values):
        found = values[np.maximum(indices, 0)]
        missing = "" if found.dtype.kind == "U" else -1
        return np.where(is_missing, np.array(missing, found.dtype), found)

    return Neighbors(
        ids=looked_up(gallery.ids),
        labels=looked_up(gallery.labels),
        distances=np.where(is_missing, np.inf, distances).astype("float32"),
        indices=np.where(is_missing, -1, indices),
        counts=np.sum(~is_missing, axis=1),
    )
