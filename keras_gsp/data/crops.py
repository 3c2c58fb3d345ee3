"""The crop of an image: random for training, fixed for evaluation."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Window = tuple[int, int, int, int]
"""Top, left, height and width, in pixels."""

# Attempts at a random window before the largest allowed one is taken.
_ATTEMPTS = 10
_AREA_FRACTIONS = 0.16, 1.0
_SIDES = 40.0, 256.0
_ASPECT_RATIOS = 3 / 4, 4 / 3


def random_window(
    height: int,
    width: int,
    random: np.random.Generator,
    *,
    crop: str = "area",
    shorter_side: float | None = None,
) -> Window:
    """Draws the window of one training crop, as `image_batches` has it.

    The aspect ratio is drawn between 3/4 and 4/3, uniformly in its logarithm. A
    window that does not fit is drawn again, ten times at most; after that it is
    the largest centered one of an allowed aspect ratio.
    """
    draws = random.random((_ATTEMPTS, 4))
    ratios = np.exp(_between(draws[:, 0], *map(math.log, _ASPECT_RATIOS)))
    if crop == "area":
        areas = _between(draws[:, 1], *_AREA_FRACTIONS) * height * width
    else:
        scale = min(height, width) / (shorter_side or min(height, width))
        areas = (_between(draws[:, 1], *_SIDES) * scale) ** 2
    heights = np.round(np.sqrt(areas / ratios))
    widths = np.round(np.sqrt(areas * ratios))
    fits = (1 <= heights) & (heights <= height)
    fits &= (1 <= widths) & (widths <= width)
    if not fits.any():
        return _largest(height, width)
    first = int(np.argmax(fits))
    rows, columns = int(heights[first]), int(widths[first])
    top = int(draws[first, 2] * (height - rows + 1))
    left = int(draws[first, 3] * (width - columns + 1))
    return top, left, rows, columns


def center_window(height: int, width: int, fraction: float | None) -> Window:
    """Returns the centered square of that fraction of the shorter side.

    `None`: the whole image.
    """
    if fraction is None:
        return 0, 0, height, width
    shorter = np.float32(min(height, width))  # as the graph decoder rounds
    side = max(int(np.round(shorter * np.float32(fraction))), 1)
    return (height - side) // 2, (width - side) // 2, side, side


def boxed_window(
    box: Sequence[float],
    inside: Callable[[int, int], Window],
    height: int,
    width: int,
) -> Window:
    """Returns the window that `inside` places in a box of an image.

    x, y, width and height of the box, rounded; one outside of the image is a
    `ValueError`.
    """
    x, y, columns, rows = np.rint(box).astype(int).tolist()
    is_in = x >= 0 and y >= 0 and min(box[2:]) >= 1
    if not is_in or x + columns > width or y + rows > height:
        numbers = ", ".join(f"{number:g}" for number in box)
        raise ValueError(
            f"outside of its ({width}, {height}) pixels: box=({numbers})"
        )
    top, left, *sides = inside(rows, columns)
    return top + y, left + x, *sides


def _largest(height, width):
    narrowest, widest = _ASPECT_RATIOS
    columns = max(min(width, round(height * widest)), 1)
    rows = max(min(height, round(width / narrowest)), 1)
    return (height - rows) // 2, (width - columns) // 2, rows, columns


def _between(draws: Any, low: float, high: float) -> Any:
    return low + draws * (high - low)
