"""Where to put the origin, so that a Gram product keeps its digits."""

import numpy as np


def nearby_origin(low, high):
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
