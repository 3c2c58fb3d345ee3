"""Where to put the origin, so that a Gram product keeps its digits."""

import numpy as np


def nearby_origin(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Returns a point near the middle of the data, on a coarse grid.

    `|x|^2 + |y|^2 - 2 x.y` loses the digits that a common offset takes;
    distances do not change when the offset is subtracted first. The grid is a
    power of two about as wide as the data: data on a grid of its own keeps
    its exact ties, and centred data is not touched, because its point is 0.

    Args:
        low: (size,), smallest value of each coordinate.
        high: (size,), largest value of each coordinate.

    Returns:
        (size,), float64.
    """
    low, high = np.asarray(low, "float64"), np.asarray(high, "float64")
    spread = np.exp2(np.frexp(high - low)[1])
    middle = low / 2 + high / 2
    return np.where(high > low, np.round(middle / spread) * spread, middle)


def moved_to_origin(
    embeddings: np.ndarray, gallery: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Shifts and scales all data alike, so that rounding stays small.

    The scale is a power of two and keeps squares from overflowing.

    Args:
        embeddings: (items, size), float32 or float64.
        gallery: (gallery, size), float32 or float64; the same array where
            there is no other.

    Returns:
        Both in their common dtype, one array where they were one, and the
        scale: moved distances are `scale` times the given ones.
    """
    dtype = np.result_type(embeddings, gallery)
    low = np.minimum(embeddings.min(axis=0), gallery.min(axis=0))
    high = np.maximum(embeddings.max(axis=0), gallery.max(axis=0))
    shift = nearby_origin(low, high)
    largest = np.max(np.maximum(np.abs(low - shift), np.abs(high - shift)))
    scale = np.exp2(-np.frexp(largest)[1]) if largest > 0 else 1.0
    shift, scale = shift.astype(dtype), dtype.type(scale)
    moved = (embeddings.astype(dtype, copy=False) - shift) * scale
    if gallery is embeddings:
        return moved, moved, float(scale)
    return (
        moved,
        (gallery.astype(dtype, copy=False) - shift) * scale,
        float(scale),
    )
