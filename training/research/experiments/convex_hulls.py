"""Convex hulls of points in the plane, and how far two of them overlap."""

from typing import Any

import numpy as np


def hull(points: Any) -> Any:
    """Corners of the convex hull; the points where they have no area.

    Args:
        points: (num_points, 2).

    Returns:
        (num_corners, 2), counter-clockwise.
    """
    from scipy.spatial import ConvexHull, QhullError

    try:
        return points[ConvexHull(points).vertices]
    except QhullError:
        return points


def area(corners: Any) -> float:
    """Area of a polygon, whose corners run counter-clockwise."""
    if len(corners) < 3:
        return 0.0
    x, y = corners.T
    twice = np.sum(x * np.roll(y, -1) - y * np.roll(x, -1))
    return float(twice) / 2.0


def overlap(one: Any, other: Any) -> float:
    """Area that two convex polygons share, of the area of either or both.

    Args:
        one: (num_corners, 2), counter-clockwise, with an area.
        other: (num_corners, 2), the same.

    Returns:
        In [0, 1].
    """
    shared = area(intersection(one, other))
    return shared / (area(one) + area(other) - shared)


def intersection(one: Any, other: Any) -> Any:
    """Corners of what two convex polygons share, none where they are apart.

    Each side of one polygon cuts off what of the other is outside (Sutherland
    and Hodgman).
    """
    for start, end in zip(other, np.roll(other, -1, axis=0), strict=True):
        one = _left_of(one, start, end)
    return one


def _left_of(corners, start, end):
    """What of a convex polygon is on the left of a line."""
    right, up = end - start
    offsets = corners - start
    sides = right * offsets[:, 1] - up * offsets[:, 0]
    kept = []
    for index, (corner, side) in enumerate(zip(corners, sides, strict=True)):
        before = sides[index - 1]
        if (side >= 0.0) != (before >= 0.0):
            share = before / (before - side)
            kept.append(
                (1.0 - share) * corners[index - 1] + share * corner,
            )
        if side >= 0.0:
            kept.append(corner)
    return np.array(kept).reshape(-1, 2)
