"""From encoded bytes or an array in memory to a resized window of pixels."""

import functools
from collections.abc import Callable
from typing import Any

from keras_gsp.data.image_header import (
    GIF,
    JPEG,
    KINDS,
    MAX_PIXELS,
    PNG,
    first_gif_frame,
    image_kind,
    is_plain_jpeg,
    orientation_of,
    stored_size,
)


def cut_encoded(
    contents: Any,
    size: Any,
    window: Callable[[Any, Any], Any],
    *,
    channels: int = 3,
    max_pixels: int = MAX_PIXELS,
) -> Any:
    """Decodes a window of an encoded image and resizes it.

    A JPEG is decoded inside the window only. The image is turned as its
    orientation says (Exif), so that windows refer to what is seen. Grey,
    palette, CMYK and transparent files come out as three channels
    (transparency is dropped), of an animated GIF the first frame; an animated
    WebP file is refused.

    Args:
        contents: Bytes of a JPEG, PNG, GIF, BMP or WebP file, string scalar.
        size: Side of the result in pixels, or (height, width).
        window: Function of the image's height and width, as it is seen, to
            the window (top, left, height, width), all in pixels.
        channels: 3, or 1 for grey values. Default 3.
        max_pixels: Pixels above which an image is not decoded. Default 50
            million, a photograph of 8,660 x 5,773.

    Returns:
        (height, width, channels), uint8.

    Raises:
        tf.errors.InvalidArgumentError: when it runs, for an image that is
            damaged, of no known format, or of more than `max_pixels`.
    """
    import tensorflow as tf

    def plain():
        shape = tf.io.extract_jpeg_shape(contents)
        checked = checked_contents(tf.cast(shape[:2], "int64"))
        place = window(shape[0], shape[1])
        return tf.image.decode_and_crop_jpeg(checked, place, channels=channels)

    # TensorFlow walks over the operations of a branch that is not taken too,
    # unless it is a function of its own: that would cost more than a small
    # image takes to decode.
    @_own_function
    def general():
        kind = image_kind(contents)
        header = _header_function()(contents)
        checked = checked_contents(header[:2])
        height, width, orientation = tf.unstack(tf.cast(header, "int32"))
        is_turned = orientation >= 5
        place = window(
            tf.where(is_turned, width, height),
            tf.where(is_turned, height, width),
        )
        place = stored_window(place, height, width, orientation)
        pixels = tf.cond(
            kind == JPEG,
            lambda: tf.image.decode_and_crop_jpeg(
                checked, place, channels=channels
            ),
            lambda: _slice(_decoder(channels)(checked), place),
        )
        return upright(pixels, orientation)

    def checked_contents(sides):
        # Not `tf.debugging.assert_...`, which costs more than a small image.
        checks = [
            tf.debugging.Assert(
                tf.reduce_min(sides) > 0, ["no image, or a damaged header"]
            ),
            tf.debugging.Assert(
                sides[0] * sides[1] <= max_pixels,
                [f"more than max_pixels={max_pixels} pixels"],
            ),
        ]
        # Else the decoder, which has no side effect, would not wait.
        with tf.control_dependencies(checks):
            return tf.identity(contents)

    pixels = tf.cond(is_plain_jpeg(contents), plain, general)
    return resized(tf.ensure_shape(pixels, [None, None, channels]), size)


def cut_array(image: Any, size: Any, window: Callable[[Any, Any], Any]) -> Any:
    """Cuts a window out of pixels in memory and resizes it.

    Args:
        image: (height, width, channels), uint8; 1 or 3 channels.
        size: Side of the result in pixels, or (height, width).
        window: As for `cut_encoded`.

    Returns:
        (height, width, channels), uint8.
    """
    import tensorflow as tf

    height, width = tf.shape(image)[0], tf.shape(image)[1]
    pixels = _slice(image, window(height, width))
    return resized(tf.ensure_shape(pixels, [None, None, image.shape[2]]), size)


def resized(pixels: Any, size: Any) -> Any:
    """Bilinear resize, rounded back to uint8.

    Without anti-aliasing, as in the papers' TensorFlow code: it would take
    ten times as long, more than decoding.

    Args:
        pixels: (height, width, channels), uint8.
        size: Side of the result in pixels, or (height, width).

    Returns:
        (height, width, channels), uint8.
    """
    import tensorflow as tf

    sides = (size, size) if isinstance(size, int) else tuple(size)
    result = tf.image.resize(pixels, sides)
    return tf.saturate_cast(tf.round(result), "uint8")


def stored_window(
    window: Any, height: Any, width: Any, orientation: Any
) -> Any:
    """Where a window of the upright image lies in the stored one.

    Args:
        window: (4,), int32: top, left, height and width as it is seen.
        height: Height of the stored image in pixels.
        width: Width of the stored image in pixels.
        orientation: 1 to 8, see `orientation_of`.

    Returns:
        (4,), int32: top, left, height and width in the stored image.
    """
    import tensorflow as tf

    is_turned, is_upside_down, is_mirrored = _moves(orientation)
    window = tf.where(is_turned, tf.gather(window, [1, 0, 3, 2]), window)
    top, left, rows, columns = tf.unstack(window)
    top = tf.where(is_upside_down, height - top - rows, top)
    left = tf.where(is_mirrored, width - left - columns, left)
    return tf.stack([top, left, rows, columns])


def upright(pixels: Any, orientation: Any) -> Any:
    """Turns stored pixels as their orientation says.

    Args:
        pixels: (height, width, channels).
        orientation: 1 to 8, see `orientation_of`.

    Returns:
        The same pixels; height and width change places from 5 on.
    """
    import tensorflow as tf

    is_turned, is_upside_down, is_mirrored = _moves(orientation)
    axes = tf.boolean_mask([0, 1], tf.stack([is_upside_down, is_mirrored]))
    order = tf.where(is_turned, [1, 0, 2], [0, 1, 2])
    result = tf.transpose(tf.reverse(pixels, axes), order)
    return tf.ensure_shape(result, [None, None, pixels.shape[2]])


def image_size(contents: bytes) -> tuple[int, int]:
    """Reads an image's height and width without decoding it.

    Args:
        contents: Bytes of a JPEG, PNG, GIF, BMP or WebP file.

    Returns:
        Height and width in pixels as the image is seen: its orientation
        (Exif) is applied; of an animated GIF those of the first frame.

    Raises:
        ValueError: another format, or a header that is damaged.

    Example:

    ```python
    import tensorflow as tf

    picture = tf.io.encode_png(np.zeros((30, 40, 3), "uint8")).numpy()
    assert gsp.data.image_size(picture) == (30, 40)
    ```
    """
    height, width, orientation = read_header(contents)
    return (width, height) if orientation >= 5 else (height, width)


def decode_image(contents: bytes, *, max_pixels: int = MAX_PIXELS) -> Any:
    """Decodes a whole image, the right way up, unless it is too large.

    What is shown or checked should come from here: it is the image as
    training and the exports see it.

    Args:
        contents: Bytes of a JPEG, PNG, GIF, BMP or WebP file.
        max_pixels: Pixels above which it is refused before it is decoded.
            Default 50 million.

    Returns:
        (height, width, 3), uint8, a NumPy array.

    Raises:
        ValueError: another format, a damaged file, or too many pixels.

    Example:

    ```python
    import tensorflow as tf

    picture = tf.io.encode_png(np.zeros((30, 40, 3), "uint8")).numpy()
    assert gsp.data.decode_image(picture).shape == (30, 40, 3)
    ```
    """
    import tensorflow as tf

    height, width, orientation = read_header(contents)
    check_num_pixels(height, width, max_pixels)
    try:
        pixels = _decoder(3)(tf.constant(contents))
        return upright(pixels, tf.constant(orientation)).numpy()
    except tf.errors.OpError as error:
        raise ValueError(
            f"`contents` must be a whole image. Received: {first_words(error)}."
        ) from error


def check_num_pixels(height: int, width: int, max_pixels: int) -> None:
    """Raises `ValueError` for an image of more than `max_pixels` pixels."""
    if height * width > max_pixels:
        raise ValueError(
            f"An image must have at most max_pixels={max_pixels} pixels. "
            f"Received: {width} x {height}."
        )


def read_header(contents: bytes) -> tuple[int, int, int]:
    """Reads stored height and width, and the orientation, of an image.

    Args:
        contents: Bytes of a file.

    Returns:
        Height and width as stored, in pixels, and the orientation, 1 to 8.

    Raises:
        ValueError: another format, or a header that is damaged.
    """
    import tensorflow as tf

    try:
        header = _header_function()(tf.constant(contents))
        height, width, orientation = header.numpy().tolist()
    except tf.errors.OpError as error:
        raise ValueError(
            "`contents` must begin as an image. "
            f"Received: {first_words(error)}."
        ) from error
    if min(height, width) < 1:
        raise ValueError(
            "`contents` must be a JPEG, PNG, GIF, BMP or WebP file. "
            f"Received: {len(contents)} bytes that begin with "
            f"{contents[:8]!r}."
        )
    return height, width, orientation


@functools.cache
def _header_function():
    """One traced function: eager calls would take milliseconds each."""
    import tensorflow as tf

    def read(contents, kind):
        orientation = tf.cast(orientation_of(contents, kind), "int64")
        return tf.concat([stored_size(contents, kind), orientation[None]], 0)

    @_own_function
    def header(contents):
        branches = [
            functools.partial(read, contents, kind)
            for kind in range(len(KINDS))
        ]
        return tf.switch_case(image_kind(contents), branches)

    return header.get_concrete_function(tf.TensorSpec([], "string"))


@functools.cache
def _decoder(channels):
    """All pixels of a file as they are stored, traced once."""
    import tensorflow as tf

    def decode(contents, num_channels):
        # Never 0 or 4 channels: with them TensorFlow 2.20 takes animated WebP
        # files too, and writes outside its memory.
        image = tf.io.decode_image(
            contents, channels=num_channels, expand_animations=False
        )
        return tf.ensure_shape(image, [None, None, num_channels])

    @_own_function
    def decoded(contents):
        kind = image_kind(contents)
        if channels == 3:
            return tf.cond(
                kind == GIF,
                lambda: decode(first_gif_frame(contents), 3),
                lambda: decode(contents, 3),
            )
        # Only JPEG and PNG decode to grey values themselves.
        return tf.cond(
            (kind == JPEG) | (kind == PNG),
            lambda: decode(contents, 1),
            lambda: tf.image.rgb_to_grayscale(_decoder(3)(contents)),
        )

    return decoded.get_concrete_function(tf.TensorSpec([], "string"))


def _own_function(function):
    """A function that TensorFlow calls, and does not copy into its caller."""
    import tensorflow as tf

    return tf.function(
        function,
        autograph=False,
        experimental_attributes={"_noinline": True},
    )


def num_pixels(contents: Any) -> Any:
    """Pixels that decoding a file would make, int64 scalar tensor.

    Args:
        contents: Bytes of a file, string scalar.
    """
    header = _header_function()(contents)
    return header[0] * header[1]


def first_words(error: Exception) -> str:
    """What TensorFlow says of a damaged image, without its stack."""
    text = getattr(error, "message", None) or str(error)
    if "Detected at node" in text:
        text = text.split("\n\n")[-1]
    text = text.split("}} ")[-1].split(" [Op")[0]
    return text.strip().splitlines()[0][:90]


def _moves(orientation):
    """Which of the three moves turn stored pixels upright."""
    import tensorflow as tf

    def is_one_of(*values):
        return tf.reduce_any(orientation == tf.constant(values))

    return orientation >= 5, is_one_of(3, 4, 6, 7), is_one_of(2, 3, 7, 8)


def _slice(image, window):
    top, left, height, width = (window[i] for i in range(4))
    return image[top : top + height, left : left + width]
