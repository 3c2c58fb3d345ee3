"""Decoding of JPEG, PNG, BMP and WebP files, with a limit on their size.

Size, format and orientation are read from the header before anything is
decoded: a PNG of 20,000 x 20,000 equal pixels has 48 kB. All functions on
string tensors are TensorFlow operations: they run in a tf.data pipeline and
inside a SavedModel.

Byte positions: JPEG (ITU T.81, B.1), Exif 2.3 (4.5.4 and 4.6.2), PNG (W3C,
sections 5 and 11.2), the Windows bitmap header, the WebP container. GIF files
are refused: TensorFlow unpacks every frame before it returns the first.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

MAX_PIXELS = 50_000_000
IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".webp")

JPEG, PNG, BMP, WEBP, UNKNOWN = range(5)
_ORIENTATION_TAG = 0x0112
# Segments or chunks that are read: a walk must end on hostile files too.
_MAX_SEGMENTS = 4096
# Zeros after the last byte: a field of a truncated file reads as 0.
_PADDING = 64


def image_size(contents: bytes) -> tuple[int, int]:
    """Reads an image's height and width without decoding it.

    Args:
        contents: bytes of a JPEG, PNG, BMP or WebP file.

    Returns:
        Height and width in pixels after the Exif orientation is applied.

    Raises:
        ValueError: another format, or a damaged header.

    Example:

    ```python
    import numpy as np
    import tensorflow as tf
    import keras_gsp as gsp

    picture = tf.io.encode_png(np.zeros((30, 40, 3), "uint8")).numpy()
    assert gsp.data.image_size(picture) == (30, 40)
    ```
    """
    height, width, orientation = read_header(contents)
    return (width, height) if orientation >= 5 else (height, width)


def decode_image(
    contents: bytes, *, max_pixels: int = MAX_PIXELS
) -> np.ndarray:
    """Decodes a whole image, upright, unless it is too large.

    Args:
        contents: bytes of a JPEG, PNG, BMP or WebP file.
        max_pixels: largest number of pixels to decode. Default 50 million.

    Returns:
        (height, width, 3), uint8.

    Raises:
        ValueError: another format, a damaged file, or too many pixels.

    Example:

    ```python
    import numpy as np
    import tensorflow as tf
    import keras_gsp as gsp

    picture = tf.io.encode_png(np.zeros((30, 40, 3), "uint8")).numpy()
    assert gsp.data.decode_image(picture).shape == (30, 40, 3)
    ```
    """
    import tensorflow as tf

    height, width, orientation = read_header(contents)
    check_num_pixels(height, width, max_pixels)
    try:
        pixels = _decoder(3)(tf.constant(contents))
        return _upright(pixels, tf.constant(orientation)).numpy()
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
    """Reads height and width as stored, and the orientation (1 to 8).

    Args:
        contents: bytes of a file.

    Raises:
        ValueError: another format, or a damaged header.
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
            "`contents` must be a JPEG, PNG, BMP or WebP file. Received: "
            f"{len(contents)} bytes that begin with {contents[:8]!r}."
        )
    return height, width, orientation


def num_pixels(contents: Any) -> Any:
    """Returns the number of pixels of an encoded image, int64 scalar tensor.

    Args:
        contents: bytes of a file, string scalar.
    """
    header = _header_function()(contents)
    return header[0] * header[1]


def first_words(error: Exception) -> str:
    """Returns TensorFlow's reason for an error, without its stack."""
    text = getattr(error, "message", None) or str(error)
    if "Detected at node" in text:
        text = text.split("\n\n")[-1]
    text = text.split("}} ")[-1].split(" [Op")[0]
    return text.strip().splitlines()[0][:90]


def cut_encoded(
    contents: Any,
    size: Any,
    window: Callable[[Any, Any], Any],
    *,
    channels: int = 3,
    max_pixels: int = MAX_PIXELS,
) -> Any:
    """Decodes a window of an encoded image and resizes it.

    Only the window of a JPEG is decoded. Gray, palette, CMYK and transparent
    files come out with three channels (transparency is dropped). Animated
    WebP files are refused.

    Args:
        contents: bytes of a JPEG, PNG, BMP or WebP file, string scalar.
        size: side of the result in pixels, or (height, width).
        window: function of the upright image's height and width that returns
            the window (top, left, height, width), all in pixels.
        channels: 3, or 1 for gray values. Default 3.
        max_pixels: largest number of pixels to decode. Default 50 million, a
            photograph of 8,660 x 5,773.

    Returns:
        (height, width, channels), uint8.

    Raises:
        tf.errors.InvalidArgumentError: when it runs, for an image that is
            damaged, of another format, or of more than `max_pixels`.
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
        kind = _image_kind(contents)
        header = _header_function()(contents)
        checked = checked_contents(header[:2])
        height, width, orientation = tf.unstack(tf.cast(header, "int32"))
        is_turned = orientation >= 5
        place = window(
            tf.where(is_turned, width, height),
            tf.where(is_turned, height, width),
        )
        place = _stored_window(place, height, width, orientation)
        pixels = tf.cond(
            kind == JPEG,
            lambda: tf.image.decode_and_crop_jpeg(
                checked, place, channels=channels
            ),
            lambda: _slice(_decoder(channels)(checked), place),
        )
        return _upright(pixels, orientation)

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

    pixels = tf.cond(_is_plain_jpeg(contents), plain, general)
    return _resized(tf.ensure_shape(pixels, [None, None, channels]), size)


def cut_array(image: Any, size: Any, window: Callable[[Any, Any], Any]) -> Any:
    """Cuts a window out of pixels in memory and resizes it.

    Args:
        image: (height, width, channels), uint8; 1 or 3 channels.
        size: side of the result in pixels, or (height, width).
        window: as for `cut_encoded`.

    Returns:
        (height, width, channels), uint8.
    """
    import tensorflow as tf

    height, width = tf.shape(image)[0], tf.shape(image)[1]
    pixels = _slice(image, window(height, width))
    return _resized(tf.ensure_shape(pixels, [None, None, image.shape[2]]), size)


def _resized(pixels, size):
    """Resizes bilinearly and rounds back to uint8.

    Without anti-aliasing, as the papers' TensorFlow code: it would take ten
    times as long, more than decoding.
    """
    import tensorflow as tf

    sides = (size, size) if isinstance(size, int) else tuple(size)
    result = tf.image.resize(pixels, sides)
    return tf.saturate_cast(tf.round(result), "uint8")


def _stored_window(window, height, width, orientation):
    """Maps a window of the upright image to the image as stored."""
    import tensorflow as tf

    is_turned, is_upside_down, is_mirrored = _moves(orientation)
    window = tf.where(is_turned, tf.gather(window, [1, 0, 3, 2]), window)
    top, left, rows, columns = tf.unstack(window)
    top = tf.where(is_upside_down, height - top - rows, top)
    left = tf.where(is_mirrored, width - left - columns, left)
    return tf.stack([top, left, rows, columns])


def _upright(pixels, orientation):
    """Turns stored pixels upright; sides change places from 5 to 8."""
    import tensorflow as tf

    is_turned, is_upside_down, is_mirrored = _moves(orientation)
    axes = tf.boolean_mask([0, 1], tf.stack([is_upside_down, is_mirrored]))
    order = tf.where(is_turned, [1, 0, 2], [0, 1, 2])
    result = tf.transpose(tf.reverse(pixels, axes), order)
    return tf.ensure_shape(result, [None, None, pixels.shape[2]])


@functools.cache
def _header_function():
    """Returns a traced function from bytes to height, width, orientation.

    Eager calls would take milliseconds each.
    """
    import tensorflow as tf

    def read(contents, kind):
        orientation = tf.cast(_orientation(contents, kind), "int64")
        return tf.concat([_stored_size(contents, kind), orientation[None]], 0)

    @_own_function
    def header(contents):
        branches = [
            functools.partial(read, contents, kind)
            for kind in range(UNKNOWN + 1)
        ]
        return tf.switch_case(_image_kind(contents), branches)

    return header.get_concrete_function(tf.TensorSpec([], "string"))


@functools.cache
def _decoder(channels):
    """Returns a traced function from bytes to all pixels as stored."""
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
        kind = _image_kind(contents)
        if channels == 3:
            return decode(contents, 3)
        # Only JPEG and PNG decode to gray values themselves.
        return tf.cond(
            (kind == JPEG) | (kind == PNG),
            lambda: decode(contents, 1),
            lambda: tf.image.rgb_to_grayscale(_decoder(3)(contents)),
        )

    return decoded.get_concrete_function(tf.TensorSpec([], "string"))


def _own_function(function):
    """Makes a function that TensorFlow does not copy into its caller."""
    import tensorflow as tf

    return tf.function(
        function,
        autograph=False,
        experimental_attributes={"_noinline": True},
    )


def _moves(orientation):
    """Returns whether to transpose, to flip vertically and horizontally."""
    import tensorflow as tf

    def is_one_of(*values):
        return tf.reduce_any(orientation == tf.constant(values))

    return orientation >= 5, is_one_of(3, 4, 6, 7), is_one_of(2, 3, 7, 8)


def _slice(image, window):
    top, left, height, width = (window[i] for i in range(4))
    return image[top : top + height, left : left + width]


def _is_plain_jpeg(contents):
    """Returns whether a file is a JPEG without an orientation, cheaply.

    It begins with a JFIF segment followed by its tables, as most images do
    that software has written.
    """
    import tensorflow as tf

    head = _head(contents, 22)
    start, tables = b"\xff\xd8\xff\xe0\0\x10JFIF\0", b"\xff\xdb"
    is_jfif = tf.strings.substr(head, 0, len(start)) == start
    return is_jfif & (tf.strings.substr(head, 20, 2) == tables)


def _image_kind(contents):
    """Returns the format by the first bytes, int32 scalar."""
    import tensorflow as tf

    head = _head(contents, 12)

    def holds(at, word):
        return tf.strings.substr(head, at, len(word)) == word

    found = [
        holds(0, b"\xff\xd8\xff"),
        holds(0, b"\x89PNG\r\n\x1a\n"),
        holds(0, b"BM"),
        holds(0, b"RIFF") & holds(8, b"WEBP"),
        tf.constant(True),
    ]
    return tf.argmax(tf.cast(tf.stack(found), "int32"), output_type="int32")


def _stored_size(contents, kind):
    """Reads height and width as stored, (2,), int64; zeros if damaged."""
    import tensorflow as tf

    if kind == JPEG:
        return tf.cast(tf.io.extract_jpeg_shape(contents)[:2], "int64")
    head = _padded(contents, limit=64)
    if kind == PNG:
        return tf.stack([_big(head, 20, 4), _big(head, 16, 4)])
    if kind == BMP:
        # Height counts from below where it is positive, else from above.
        sides = tf.stack([_little(head, 22, 4), _little(head, 18, 4)])
        return tf.where(sides >= 2**31, 2**32 - sides, sides)
    if kind == WEBP:
        return _webp_size(head)
    return tf.zeros(2, "int64")


def _orientation(contents, kind):
    """Reads the orientation, 1 (as stored) to 8; 1 where none is valid.

    Cameras store the pixels as the sensor lay and write the orientation into
    the Exif segment of a JPEG, before its tables; the `eXIf` chunk of a PNG;
    the `EXIF` chunk of a WebP file.
    """
    import tensorflow as tf

    as_stored = tf.constant(1)
    if kind not in (JPEG, PNG, WEBP):
        return as_stored

    def walked():
        data = _padded(contents)
        if kind == JPEG:
            block = _jpeg_exif(data)
        elif kind == PNG:
            block = _chunk(data, 8, b"eXIf", _png_chunk)
        else:
            block = _chunk(data, 12, b"EXIF", _webp_chunk)
        return tf.where(block < 0, 1, _tiff(data, block))

    if kind == JPEG:
        return walked()
    # A walk over the chunks takes as long as decoding a small image: do it
    # for files that hold the word at all.
    word = "eXIf" if kind == PNG else "EXIF"
    has_word = tf.strings.regex_full_match(contents, rf"\C*{word}\C*")
    return tf.cond(has_word, walked, lambda: as_stored)


def _head(contents, length):
    """Returns the first bytes, padded to `length` or more."""
    import tensorflow as tf

    return tf.strings.substr(contents, 0, length) + b"\0" * length


def _padded(contents, limit=-1):
    """Returns bytes as int32, (length + padding,)."""
    import tensorflow as tf

    if limit > 0:
        contents = tf.strings.substr(contents, 0, limit)
    data = tf.io.decode_raw(contents, "uint8")
    return tf.pad(tf.cast(data, "int32"), [[0, _PADDING]])


def _last(data):
    """Returns the last position from which a field may be read."""
    import tensorflow as tf

    return tf.size(data) - _PADDING


def _field(data, at, count):
    import tensorflow as tf

    at = tf.clip_by_value(at, 0, _last(data))
    return tf.cast(data[at : at + count], "int64")


def _big(data, at, count):
    import tensorflow as tf

    powers = tf.constant([256**i for i in reversed(range(count))], "int64")
    return tf.reduce_sum(_field(data, at, count) * powers)


def _little(data, at, count):
    import tensorflow as tf

    powers = tf.constant([256**i for i in range(count)], "int64")
    return tf.reduce_sum(_field(data, at, count) * powers)


def _word(data, at, word):
    import tensorflow as tf

    expected = tf.constant(list(word), "int64")
    return tf.reduce_all(_field(data, at, len(word)) == expected)


def _webp_size(head):
    import tensorflow as tf

    is_extended, is_lossless = (
        _word(head, 12, b"VP8X"),
        _word(head, 12, b"VP8L"),
    )
    bits = _little(head, 21, 4)
    extended = tf.stack([_little(head, 27, 3) + 1, _little(head, 24, 3) + 1])
    lossless = tf.stack([bits // 2**14 % 2**14 + 1, bits % 2**14 + 1])
    lossy = tf.stack(
        [_little(head, 28, 2) % 2**14, _little(head, 26, 2) % 2**14]
    )
    return tf.where(
        is_extended, extended, tf.where(is_lossless, lossless, lossy)
    )


def _jpeg_exif(data):
    """Finds the TIFF block of the Exif segment; -1 if there is none."""
    import tensorflow as tf

    def is_before(at, found):
        marker = data[at + 1]
        # Application segments, comments, fill bytes.
        is_early = (marker >= 0xE0) & (marker <= 0xEF)
        is_early |= (marker == 0xFE) | (marker == 0xFF)
        is_early &= data[at] == 0xFF
        return (found < 0) & is_early & (at < _last(data))

    def following(at, found):
        marker = data[at + 1]
        length = tf.cast(_big(data, at + 2, 2), "int32")
        step = tf.where(marker == 0xFF, 1, 2 + tf.maximum(length, 2))
        is_exif = (marker == 0xE1) & _word(data, at + 4, b"Exif\0\0")
        found = tf.where(is_exif, at + 10, found)
        return tf.minimum(at + step, _last(data)), found

    _, found = tf.while_loop(
        is_before, following, (2, -1), maximum_iterations=_MAX_SEGMENTS
    )
    return found


def _chunk(data, start, word, layout):
    """Finds the content of a chunk; -1 if there is no such chunk."""
    import tensorflow as tf

    def is_before(at, found):
        return (found < 0) & (at < _last(data))

    def following(at, found):
        name_at, content, length = layout(data, at)
        found = tf.where(_word(data, name_at, word), content, found)
        following_at = tf.cast(content, "int64") + length
        following_at = tf.minimum(following_at, tf.cast(_last(data), "int64"))
        return tf.cast(following_at, "int32"), found

    _, found = tf.while_loop(
        is_before, following, (start, -1), maximum_iterations=_MAX_SEGMENTS
    )
    return found


def _png_chunk(data, at):
    """Returns where name and content are, and the bytes to the next."""
    return at + 4, at + 8, _big(data, at, 4) + 4


def _webp_chunk(data, at):
    length = _little(data, at + 4, 4)
    return at, at + 8, length + length % 2


def _tiff(data, block):
    """Reads the orientation from the first directory of a TIFF block."""
    import tensorflow as tf

    # Some writers put the name of the JPEG segment before the block.
    named = _word(data, block, b"Exif\0\0")
    block = tf.where(named, block + 6, block)
    is_little = _word(data, block, b"II")

    def number(at, count):
        return tf.where(
            is_little, _little(data, at, count), _big(data, at, count)
        )

    end = tf.cast(_last(data), "int64")
    directory = tf.cast(block, "int64") + number(block + 4, 4)
    directory = tf.cast(tf.minimum(directory, end), "int32")
    count = number(directory, 2)
    room = (end - tf.cast(directory, "int64") - 2) // 12
    count = tf.cast(tf.maximum(tf.minimum(count, room), 0), "int32")
    first = directory + 2
    entries = tf.reshape(data[first : first + 12 * count], (-1, 12))
    low, high = (
        tf.where(is_little, entries[:, 0::2], entries[:, 1::2]),
        tf.where(is_little, entries[:, 1::2], entries[:, 0::2]),
    )
    words = low + 256 * high
    # Tag, type (3: two bytes), then the number of values and the first one.
    is_it = (words[:, 0] == _ORIENTATION_TAG) & (words[:, 1] == 3)
    values = tf.where(is_it, words[:, 4], 0)
    value = tf.reduce_max(tf.concat([values, [0]], axis=0))
    is_valid = (value >= 1) & (value <= 8)
    is_valid &= is_little | _word(data, block, b"MM")
    return tf.where(is_valid, value, 1)
