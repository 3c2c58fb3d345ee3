"""Checks of embeddings and their labels, and centering for exact distances."""

from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_gsp._checks import check_same_size
from keras_gsp._labels import checked_labels, label_codes


class SearchedSides(NamedTuple):
    """Checked queries and gallery, and their classes as codes from 0."""

    embeddings: np.ndarray
    codes: np.ndarray
    gallery: np.ndarray
    gallery_codes: np.ndarray
    is_own_gallery: bool


def searched_sides(
    embeddings: Any,
    labels: Any,
    gallery_embeddings: Any = None,
    gallery_labels: Any = None,
) -> SearchedSides:
    """Checks queries and gallery and numbers their classes consistently.

    Arguments and errors are those of `retrieval_scores`.
    """
    embeddings = checked_embeddings(embeddings, "embeddings")
    if (gallery_embeddings is None) != (gallery_labels is None):
        missing = "labels" if gallery_labels is None else "embeddings"
        raise ValueError(
            "`gallery_embeddings` and `gallery_labels` must be given together. "
            f"Received: no gallery_{missing}."
        )
    gallery = embeddings
    if gallery_embeddings is not None:
        gallery = checked_embeddings(gallery_embeddings, "gallery_embeddings")
    names = ("embeddings", "gallery_embeddings")
    check_same_size(embeddings, gallery, names, axis=1)
    own_gallery = gallery_embeddings is None
    both = labels = checked_labels(labels, len(embeddings))
    if not own_gallery:
        others = checked_labels(gallery_labels, len(gallery), "gallery_labels")
        if labels.dtype.kind != others.dtype.kind:
            raise TypeError(
                "`labels` and `gallery_labels` must be of one type. Received: "
                f"dtypes {labels.dtype} and {others.dtype}."
            )
        both = np.concatenate([labels, others])
    codes, _ = label_codes(both)
    return SearchedSides(
        embeddings,
        codes[: len(embeddings)],
        gallery,
        codes[-len(gallery) :],
        own_gallery,
    )


def checked_embeddings(embeddings: Any, name: str = "embeddings") -> np.ndarray:
    """Returns embeddings (items, size) as a finite NumPy array.

    float64 stays float64, other dtypes become float32.
    """
    if not isinstance(embeddings, np.ndarray):
        embeddings = ops.convert_to_numpy(embeddings)
    if embeddings.ndim != 2 or 0 in embeddings.shape:
        raise ValueError(
            f"`{name}` must have shape (items, size), with at least one of "
            f"each. Received: shape {tuple(embeddings.shape)}."
        )
    if embeddings.dtype != "float64":
        embeddings = embeddings.astype("float32", copy=False)
    # A finite sum shows that a row is finite, without a second array in
    # memory; rows whose sum overflows are checked entry by entry.
    with np.errstate(over="ignore", invalid="ignore"):
        bad = ~np.isfinite(embeddings.sum(axis=1))
    bad[bad] = ~np.isfinite(embeddings[bad]).all(axis=1)
    if bad.any():
        raise ValueError(
            f"`{name}` must be finite. Received: {int(bad.sum())} of "
            f"{len(bad)} rows with NaN or infinity, the first at row "
            f"{int(np.argmax(bad))}."
        )
    return embeddings


def nearby_origin(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Returns a point near the middle of data in [low, high], on a coarse grid.

    `|x|^2 + |y|^2 - 2 x.y` cancels digits if the data have a common offset. The
    grid is a power of two about as wide as the data: exact ties stay exact, and
    for centered data the point is 0.
    """
    low, high = np.asarray(low, "float64"), np.asarray(high, "float64")
    spread = np.exp2(np.frexp(high - low)[1])
    middle = low / 2 + high / 2
    return np.where(high > low, np.round(middle / spread) * spread, middle)


def moved_to_origin(
    embeddings: np.ndarray, gallery: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Shifts and scales queries and gallery, to keep rounding small.

    Returns both in their common dtype, and the scale, a power of two: distances
    become `scale` times the given ones.
    """
    dtype = np.result_type(embeddings, gallery)
    low = np.minimum(embeddings.min(axis=0), gallery.min(axis=0))
    high = np.maximum(embeddings.max(axis=0), gallery.max(axis=0))
    shift = nearby_origin(low, high)
    largest = np.max(np.maximum(np.abs(low - shift), np.abs(high - shift)))
    scale = np.exp2(-np.frexp(largest)[1]) if largest > 0 else 1.0
    shift, scale = shift.astype(dtype), dtype.type(scale)
    moved = other = (embeddings.astype(dtype, copy=False) - shift) * scale
    if gallery is not embeddings:
        other = (gallery.astype(dtype, copy=False) - shift) * scale
    return moved, other, float(scale)
