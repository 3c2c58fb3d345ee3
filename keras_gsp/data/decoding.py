"""From encoded bytes or an array in memory to a resized window of pixels.

Size, format and orientation are read from the header before anything is
decoded: a file of a few kilobytes can ask for gigabytes of pixels, as a PNG of
20,000 x 20,000 equal ones does with 48 kB. Everything here is TensorFlow
operations, so that it runs in a tf.data pipeline and inside a SavedModel.

The byte positions are those of the formats' descriptions: JPEG (ITU T.81,
B.1), Exif 2.3 (4.5.4 and 4.6.2), PNG (W3C, section 5 and 11.2), GIF89a
(sections 18 to 23), the Windows bitmap header, the WebP container.
"""

import functools
from collections.abc import Callable
from typing import Any

MAX_PIXELS = 50_000_000

KINDS = "JPEG", "PNG", "GIF", "BMP", "WebP", "unknown"
JPEG, PNG, GIF, BMP, WEBP, UNKNOWN = range(6)
_ORIENTATION_TAG = 0x0112
# Segments or chunks that are looked at: a walk must end on hostile files too.
_MAX_SEGMENTS = 4096
# Zeros behind the bytes: a field of a file that is cut off reads as 0.
_PADDING = 64


def is_plain_jpeg(contents: Any) -> Any:
    """Whether a file is a JPEG that holds no orientation, bool scalar.

    It begins with a JFIF segment and goes on with its tables, as most images
    do that were made by software: nothing else need be looked at.

    Args:
        contents: Bytes of a file, string scalar.
    """
    import tensorflow as tf

    head = _head(contents, 22)
    start, tables = b"\xff\xd8\xff\xe0\0\x10JFIF\0", b"\xff\xdb"
    is_jfif = tf.strings.substr(head, 0, len(start)) == start
    return is_jfif & (tf.strings.substr(head, 20, 2) == tables)


def image_kind(contents: Any) -> Any:
    """Tells the format by the first bytes.

    Args:
        contents: Bytes of a file, string scalar.

    Returns:
        int32 scalar: `JPEG`, `PNG`, `GIF`, `BMP`, `WEBP` or `UNKNOWN`.
    """
    import tensorflow as tf

    head = _head(contents, 12)

    def holds(at, word):
        return tf.strings.substr(head, at, len(word)) == word

    found = [
        holds(0, b"\xff\xd8\xff"),
        holds(0, b"\x89PNG\r\n\x1a\n"),
        holds(0, b"GIF8"),
        holds(0, b"BM"),
        holds(0, b"RIFF") & holds(8, b"WEBP"),
        tf.constant(True),
    ]
    return tf.argmax(tf.cast(tf.stack(found), "int32"), output_type="int32")


def stored_size(contents: Any, kind: int) -> Any:
    """Reads how many pixels a decoder would make.

    Args:
        contents: Bytes of a file, string scalar.
        kind: What `image_kind` says of it, a Python number.

    Returns:
        (2,), int64: height and width as they are stored, before the
        orientation is applied; of a GIF those of its first frame; zeros where
        they cannot be read.
    """
    import tensorflow as tf

    if kind == JPEG:
        return tf.cast(tf.io.extract_jpeg_shape(contents)[:2], "int64")
    if kind == GIF:
        data = _padded(contents)
        at = _first_gif_frame(data)
        return tf.stack([_little(data, at + 7, 2), _little(data, at + 5, 2)])
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


def orientation_of(contents: Any, kind: int) -> Any:
    """Reads which way up an image is shown.

    Cameras store the pixels as the sensor lay and write the orientation
    beside them: into the Exif segment of a JPEG, which stands before its
    tables, the `eXIf` chunk of a PNG, the `EXIF` chunk of a WebP file.

    Args:
        contents: Bytes of a file, string scalar.
        kind: What `image_kind` says of it, a Python number.

    Returns:
        int32 scalar, 1 (as stored) to 8; 1 where nothing valid is said.
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


def first_gif_frame(contents: Any) -> Any:
    """Cuts an animation off behind its first frame.

    TensorFlow's decoder unpacks all frames even where one is asked for: an
    animation could hide gigabytes behind a small first frame.

    Args:
        contents: Bytes of a GIF file, string scalar.

    Returns:
        Bytes of a GIF file with one frame, string scalar.
    """
    import tensorflow as tf

    data = _padded(contents)
    at = _first_gif_frame(data)
    table = _color_table(data, at + 9)
    # Behind the colors one byte, then the compressed pixels.
    end = _chain_ends(data)[tf.minimum(at + 11 + table, _last(data))]
    length = tf.minimum(end + 1, tf.strings.length(contents))
    return tf.strings.substr(contents, 0, length) + b";"


def _head(contents, length):
    """The first bytes as a string that is never shorter."""
    import tensorflow as tf

    return tf.strings.substr(contents, 0, length) + b"\0" * length


def _padded(contents, limit=-1):
    """Bytes as int32, (length + padding,)."""
    import tensorflow as tf

    if limit > 0:
        contents = tf.strings.substr(contents, 0, limit)
    data = tf.io.decode_raw(contents, "uint8")
    return tf.pad(tf.cast(data, "int32"), [[0, _PADDING]])


def _last(data):
    """Position of the last byte from which a field may be read."""
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


def _color_table(data, flags_at):
    """Bytes of the color table that a GIF's flags announce."""
    import tensorflow as tf

    flags = data[tf.minimum(flags_at, _last(data))]
    size = 3 * tf.bitwise.left_shift(2, flags % 8)
    return tf.where(flags >= 128, size, 0)


def _first_gif_frame(data):
    """Position of the first image descriptor, behind all if there is none."""
    import tensorflow as tf

    ends = _chain_ends(data)

    def is_extension(at):
        return data[at] == 0x21

    def behind(at):
        chain = tf.minimum(at + 2, _last(data))
        return (tf.minimum(ends[chain] + 1, _last(data)),)

    start = tf.minimum(13 + _color_table(data, 10), _last(data))
    (at,) = tf.while_loop(
        is_extension, behind, (start,), maximum_iterations=_MAX_SEGMENTS
    )
    return tf.where(data[at] == 0x2C, at, _last(data))


def _chain_ends(data):
    """Where the chain of sub-blocks ends that begins at each byte.

    A sub-block is its length and so many bytes; length 0 ends the chain.
    Following all chains at once by doubling takes log2(length) steps, where
    one after the other takes one for each 255 bytes.
    """
    import tensorflow as tf

    positions = tf.range(tf.size(data))
    step = tf.where(data == 0, 0, data + 1)
    following = tf.minimum(positions + step, positions[-1])
    ends, _ = tf.while_loop(
        lambda ends, further: tf.reduce_any(ends != further),
        lambda _, further: (further, tf.gather(further, further)),
        (following, tf.gather(following, following)),
    )
    return ends


def _jpeg_exif(data):
    """Position of the Exif segment's TIFF block, -1 if there is none."""
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
    """Position of a chunk's content, -1 if there is no such chunk."""
    import tensorflow as tf

    def is_before(at, found):
        return (found < 0) & (at < _last(data))

    def following(at, found):
        name_at, content, length = layout(data, at)
        found = tf.where(_word(data, name_at, word), content, found)
        behind = tf.cast(content, "int64") + length
        behind = tf.minimum(behind, tf.cast(_last(data), "int64"))
        return tf.cast(behind, "int32"), found

    _, found = tf.while_loop(
        is_before, following, (start, -1), maximum_iterations=_MAX_SEGMENTS
    )
    return found


def _png_chunk(data, at):
    """Positions of name and content, and bytes from there to the next."""
    return at + 4, at + 8, _big(data, at, 4) + 4


def _webp_chunk(data, at):
    length = _little(data, at + 4, 4)
    return at, at + 8, length + length % 2


def _tiff(data, block):
    """The orientation that a TIFF block's first directory holds."""
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
    orientation says (Exif), so that windows refer to what is seen. Gray,
    palette, CMYK and transparent files come out as three channels
    (transparency is dropped), of an animated GIF the first frame; an animated
    WebP file is refused.

    Args:
        contents: Bytes of a JPEG, PNG, GIF, BMP or WebP file, string scalar.
        size: Side of the result in pixels, or (height, width).
        window: Function of the image's height and width, as it is seen, to
            the window (top, left, height, width), all in pixels.
        channels: 3, or 1 for gray values. Default 3.
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
        # Only JPEG and PNG decode to gray values themselves.
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
