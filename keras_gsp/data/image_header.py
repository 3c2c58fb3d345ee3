"""Size and orientation of an encoded image, read before it is decoded.

A file of a few kilobytes can ask for gigabytes of pixels: a PNG of 20,000 x
20,000 equal pixels has 48 kB. Everything here is TensorFlow operations on the
bytes alone, so that it runs in a tf.data pipeline and inside a SavedModel.

The byte positions are those of the formats' descriptions: JPEG (ITU T.81,
B.1), Exif 2.3 (4.5.4 and 4.6.2), PNG (W3C, section 5 and 11.2), GIF89a
(sections 18 to 23), the Windows bitmap header, the WebP container.
"""

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
    table = _colour_table(data, at + 9)
    # Behind the colours one byte, then the compressed pixels.
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


def _colour_table(data, flags_at):
    """Bytes of the colour table that a GIF's flags announce."""
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

    start = tf.minimum(13 + _colour_table(data, 10), _last(data))
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
