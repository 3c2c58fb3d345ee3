"""The crop of an image: random for training, fixed for evaluation."""

import math
from collections.abc import Callable

from keras_gsp.ops.tensor import Tensor

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
    """Draws the window of one training crop.

    - `"area"`, as in the benchmark's public code: the crop covers 0.16 to 1
      of the image's area.
    - `"side"`, as in its text: with the image's shorter side scaled to
      `resize` pixels, the crop has the area of a square whose side is drawn
      between 40 and 256 pixels.

    The aspect ratio is drawn between 3/4 and 4/3, uniformly in its logarithm.
    A window that does not fit is drawn again, ten times at most; after that
    the largest centered window of an allowed aspect ratio is taken. The same
    seed, (2,) int64, draws the same window.

    Returns:
        (4,), int32: top, left, height and width of the window in pixels.

    Reference:
        Musgrave et al., A Metric Learning Reality Check (ECCV 2020),
        section 4, and the configuration files of its code.
    """
    import tensorflow as tf

    height, width = tf.cast(height, "float32"), tf.cast(width, "float32")
    draws = tf.random.stateless_uniform((_ATTEMPTS, 4), seed)
    log_ratios = _between(draws[:, 0], *map(math.log, _ASPECT_RATIOS))
    areas = _areas(draws[:, 1], height, width, crop, resize)
    widths = tf.round(tf.sqrt(areas * tf.exp(log_ratios)))
    heights = tf.round(tf.sqrt(areas * tf.exp(-log_ratios)))
    fits = (widths >= 1) & (heights >= 1)
    fits &= (widths <= width) & (heights <= height)
    tops = tf.floor(draws[:, 2] * (height - heights + 1))
    lefts = tf.floor(draws[:, 3] * (width - widths + 1))
    windows = tf.stack([tops, lefts, heights, widths], axis=1)
    first = windows[tf.argmax(tf.cast(fits, "int32"))]
    drawn = tf.where(tf.reduce_any(fits), first, _largest(height, width))
    return tf.cast(drawn, "int32")


def evaluation_window(
    fraction: float | None,
) -> Callable[[Tensor, Tensor], Tensor]:
    """Returns the function that crops for evaluation, indexes and exports.

    It maps height and width to the centered square whose side is that fraction
    of the shorter side: (top, left, height, width), int32. `None` keeps the
    whole image.
    """
    import tensorflow as tf

    def window(height, width):
        if fraction is None:
            return tf.stack([0, 0, height, width])
        shorter = tf.cast(tf.minimum(height, width), "float32")
        side = tf.maximum(tf.cast(tf.round(shorter * fraction), "int32"), 1)
        return tf.stack([(height - side) // 2, (width - side) // 2, side, side])

    return window


def _areas(draws, height, width, crop, resize):
    if crop == "area":
        return _between(draws, *_AREA_FRACTIONS) * height * width
    import tensorflow as tf

    scale = tf.minimum(height, width) / resize
    return (_between(draws, *_SIDES) * scale) ** 2


def _largest(height, width):
    import tensorflow as tf

    narrowest, widest = _ASPECT_RATIOS
    new_width = tf.minimum(width, tf.round(height * widest))
    new_height = tf.minimum(height, tf.round(width / narrowest))
    top = tf.floor((height - new_height) / 2)
    left = tf.floor((width - new_width) / 2)
    window = tf.stack([top, left, new_height, new_width])
    return tf.maximum(window, [0.0, 0.0, 1.0, 1.0])


def _between(draws, low, high):
    return low + draws * (high - low)
