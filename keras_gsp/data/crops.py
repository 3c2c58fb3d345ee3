"""The crop of an image: random for training, fixed for evaluation."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from keras_gsp._tensor import Tensor
from keras_gsp.data.untuned import tf

# Attempts at a random window before the largest allowed one is taken.
_ATTEMPTS = 10
_AREA_FRACTIONS = 0.16, 1.0
_SIDES = 40.0, 256.0
_ASPECT_RATIOS = 3 / 4, 4 / 3


def random_window(
    height: Tensor,
    width: Tensor,
    seed: Tensor,
    *,
    crop: str = "area",
    resize: int = 256,
) -> Tensor:
    """Draws the window of one training crop, as `augmented_batches` has it.

    The aspect ratio is drawn between 3/4 and 4/3, uniformly in its logarithm. A
    window that does not fit is drawn again, ten times at most; after that it is
    the largest centered one of an allowed aspect ratio. The same seed, (2,)
    int64, draws the same window, (4,) int32: top, left, height, width.
    """
    height, width = tf.cast(height, "float32"), tf.cast(width, "float32")
    draws = tf.random.stateless_uniform((_ATTEMPTS, 4), seed)
    window = _window(draws, height, width, crop, resize, tf)
    return tf.cast(window, "int32")


def host_random_window(
    height: int, width: int, seed: Sequence[int], *, crop: str, resize: int
) -> Any:
    """As `random_window`, on the host; a seed draws another window there."""
    draws = np.random.default_rng(seed).random((_ATTEMPTS, 4))
    sides = np.float64(height), np.float64(width)
    return _window(draws, *sides, crop, resize, np).astype("int32")


def _window(draws, height, width, crop, resize, numpy):
    """The first drawn window that fits; `numpy` may be TensorFlow's."""
    log_ratios = _between(draws[:, 0], *map(math.log, _ASPECT_RATIOS))
    if crop == "area":
        areas = _between(draws[:, 1], *_AREA_FRACTIONS) * height * width
    else:
        scale = numpy.minimum(height, width) / resize
        areas = (_between(draws[:, 1], *_SIDES) * scale) ** 2
    widths = numpy.round(numpy.sqrt(areas * numpy.exp(log_ratios)))
    heights = numpy.round(numpy.sqrt(areas * numpy.exp(-log_ratios)))
    fits = (widths >= 1) & (heights >= 1)
    fits &= (widths <= width) & (heights <= height)
    tops = numpy.floor(draws[:, 2] * (height - heights + 1))
    lefts = numpy.floor(draws[:, 3] * (width - widths + 1))
    windows = numpy.stack([tops, lefts, heights, widths], axis=1)
    first = numpy.argmax(numpy.where(fits, 1, 0))
    largest = _largest(height, width, numpy)
    return numpy.where(fits[first], windows[first], largest)


def evaluation_window(
    fraction: float | None,
) -> Callable[[Tensor, Tensor], Tensor]:
    """Returns the function that crops for evaluation, indexes and exports.

    It maps height and width to (top, left, height, width) of the centered
    square whose side is that fraction of the shorter side; `None`: of all.
    """

    def window(height, width):
        if isinstance(height, int):
            if fraction is None:
                return 0, 0, height, width
            shorter = np.float32(min(height, width))
            side = max(int(np.round(shorter * np.float32(fraction))), 1)
            return (height - side) // 2, (width - side) // 2, side, side
        if fraction is None:
            return tf.stack([0, 0, height, width])
        shorter = tf.cast(tf.minimum(height, width), "float32")
        side = tf.maximum(tf.cast(tf.round(shorter * fraction), "int32"), 1)
        return tf.stack([(height - side) // 2, (width - side) // 2, side, side])

    return window


def boxed_window(
    box: Tensor, inside: Callable[[Tensor, Tensor], Tensor]
) -> Callable[[Tensor, Tensor], Tensor]:
    """Returns `inside` for the part of an image in a box, int32.

    x, y, width and height, zeros for all of it. One outside of the image is an
    InvalidArgumentError of TensorFlow when it runs.
    """

    def window(height, width):
        is_in = are_inside(box, tf.stack([height, width]))
        place = tf.where(tf.reduce_any(box != 0), box, [0, 0, width, height])
        with tf.control_dependencies([tf.debugging.Assert(is_in, ["box"])]):
            x, y, across, down = tf.unstack(place)
            return inside(down, across) + tf.stack([y, x, 0, 0])

    return window


def are_inside(boxes: Tensor, sides: Tensor) -> Tensor:
    """Whether boxes (..., 4) lie in images of sides (..., 2), or are zeros."""
    starts, lengths = boxes[..., :2], boxes[..., 2:]
    ends = tf.cast(sides[..., ::-1], boxes.dtype)
    are_in = (starts >= 0) & (lengths > 0) & (starts + lengths <= ends)
    is_none = tf.reduce_all(boxes == 0, axis=-1)
    return is_none | tf.reduce_all(are_in, axis=-1)


def _largest(height, width, numpy):
    narrowest, widest = _ASPECT_RATIOS
    new_width = numpy.minimum(width, numpy.round(height * widest))
    new_height = numpy.minimum(height, numpy.round(width / narrowest))
    top = numpy.floor((height - new_height) / 2)
    left = numpy.floor((width - new_width) / 2)
    window = numpy.stack([top, left, new_height, new_width])
    return numpy.maximum(window, [0.0, 0.0, 1.0, 1.0])


def _between(draws, low, high):
    return low + draws * (high - low)
