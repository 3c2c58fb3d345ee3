"""Decoding of JPEG, PNG, BMP and WebP files inside a SavedModel.

The pixels are those of `data.decoding`, by the same rule. Format, size and
orientation are read from the header before anything is decoded: a PNG of 20,000
x 20,000 equal pixels has 48 kB. GIF files are refused: TensorFlow unpacks every
frame before it returns the first. Byte positions: JPEG (ITU T.81, B.1), Exif
2.3 (4.5.4 and 4.6.2), PNG (W3C, sections 5 and 11.2), the Windows bitmap
header, the WebP container.
"""

import functools
from typing import Any

from keras_gsp._tensor import Tensor
from keras_gsp.data.decoding import MOVES
from keras_gsp.data.preprocessing import Preprocessing


class _TensorFlow:
    """TensorFlow, imported when it is first used."""

    def __getattr__(self, name: str) -> Any:
        import tensorflow

        return getattr(tensorflow, name)


tf: Any = _TensorFlow()

# As Pillow decodes.
_TRANSFORM = "INTEGER_ACCURATE"

JPEG, PNG, BMP, WEBP, UNKNOWN = range(5)
# The word before the Exif data, by format.
_EXIF_WORDS = {JPEG: "Exif\0\0", PNG: "eXIf", WEBP: "EXIF"}
_EXIF_BYTES = 2**16
_ORIENTATION_TAG = 0x0112


def stored_sides(contents: Tensor) -> Tensor:
    """Returns height and width of a file's image as stored, (2,) int64."""
    return tf.cast(_header_function()(contents)[:2], "int64")


def cut_encoded(
    contents: Tensor, cut: Preprocessing, size: tuple[int, int] | None
) -> Any:
    """Decodes an encoded image, cut as `cut` says, uint8.

    Without a `size` an image keeps its own, reduced to the `shorter_side`. A
    damaged or too large image, another format and an animated WebP file are an
    `InvalidArgumentError` when it runs.
    """
    channels, shorter_side = cut.channels, cut.shorter_side

    def target(sides):
        if size is not None:
            return tf.constant(size)
        if shorter_side is None:
            return sides
        exact = tf.cast(sides, "float64")
        ratio = tf.minimum(shorter_side / tf.reduce_min(exact), 1.0)
        return tf.maximum(tf.cast(tf.round(exact * ratio), "int32"), 1)

    def jpeg(contents, place, sides):
        def decoded(scale):
            return tf.io.decode_jpeg(
                contents,
                channels=channels,
                ratio=scale,
                dct_method=_TRANSFORM,
            )

        # The smallest with twice the pixels that are wanted.
        ratio = tf.reduce_min(place[2:] // (2 * sides))
        steps = tf.reduce_sum(tf.cast(ratio >= [2, 4, 8], "int32"))
        branches = [functools.partial(decoded, scale) for scale in (1, 2, 4, 8)]
        return tf.switch_case(steps, branches), 2**steps

    header = _header_function()(contents)
    checked = _small_enough(contents, header[:2], cut.max_pixels)
    height, width, orientation = tf.unstack(header)
    is_turned = orientation >= 5
    upright = tf.where(is_turned, [width, height], [height, width])
    place = _window(upright[0], upright[1], cut.crop_fraction)
    sides = target(place[2:])
    sides = tf.where(is_turned, sides[::-1], sides)
    place = _stored_window(place, height, width, orientation)
    pixels, scale = tf.cond(
        _image_kind(contents) == JPEG,
        lambda: jpeg(checked, place, sides),
        lambda: (_decoder(channels)(checked, tf.constant(cut.background)), 1),
    )
    pixels = _upright(_resized(pixels, place, sides, scale), orientation)
    height, width = size or (None, None)
    return tf.ensure_shape(pixels, [height, width, channels])


def _window(height, width, fraction):
    """The window of `data.crops.center_window`: top, left, height, width."""
    if fraction is None:
        return tf.stack([0, 0, height, width])
    shorter = tf.cast(tf.minimum(height, width), "float32")
    side = tf.maximum(tf.cast(tf.round(shorter * fraction), "int32"), 1)
    return tf.stack([(height - side) // 2, (width - side) // 2, side, side])


def _resized(pixels, place, sides, scale):
    """Resizes a window, in pixels before the image was decoded smaller."""
    place, scale = tf.cast(place, "float32"), tf.cast(scale, "float32")
    starts, lengths = place[:2] / scale, place[2:] / scale
    low = tf.cast(tf.floor(starts), "int32")
    high = tf.cast(tf.math.ceil(starts + lengths), "int32")
    pixels = pixels[low[0] : high[0], low[1] : high[1]]

    def resampled():
        ratios = tf.cast(sides, "float32") / lengths
        shifts = (tf.cast(low, "float32") - starts) * ratios
        result = pixels[None]
        # Columns, then rows, rounded in between, as Pillow.
        for axis in (1, 0):
            is_axis = tf.range(2) == axis
            resized = tf.raw_ops.ScaleAndTranslate(
                images=result,
                size=tf.where(is_axis, sides, tf.shape(result)[1:3]),
                scale=tf.where(is_axis, ratios, 1.0),
                translation=tf.where(is_axis, shifts, 0.0),
                kernel_type="triangle",
                antialias=True,
            )
            result = tf.saturate_cast(tf.floor(resized + 0.5), "uint8")
        return result[0]

    is_same = tf.reduce_all(tf.cast(sides, "float32") == lengths)
    return tf.cond(is_same & (scale == 1.0), lambda: pixels, resampled)


def _small_enough(contents, sides, max_pixels):
    """Returns contents, once their image has pixels and not too many."""
    # Not `tf.debugging.assert_...`, which costs more than a small image.
    is_image = tf.reduce_min(sides) > 0
    is_small = tf.reduce_prod(tf.cast(sides, "int64")) <= max_pixels
    limit = f"more than max_pixels={max_pixels} pixels"
    checks = [
        tf.debugging.Assert(is_image, ["no image, or a damaged header"]),
        tf.debugging.Assert(is_small, [limit]),
    ]
    # Else the decoder, which has no side effect, would not wait.
    with tf.control_dependencies(checks):
        return tf.identity(contents)


def _stored_window(window, height, width, orientation):
    """Maps a window of the upright image to the image as stored."""
    is_turned, is_upside_down, is_mirrored = _moves(orientation)
    window = tf.where(is_turned, tf.gather(window, [1, 0, 3, 2]), window)
    top, left, rows, columns = tf.unstack(window)
    top = tf.where(is_upside_down, height - top - rows, top)
    left = tf.where(is_mirrored, width - left - columns, left)
    return tf.stack([top, left, rows, columns])


def _upright(pixels, orientation):
    """Turns stored pixels upright; sides change places from 5 to 8."""
    is_turned, is_upside_down, is_mirrored = _moves(orientation)
    axes = tf.boolean_mask([0, 1], tf.stack([is_upside_down, is_mirrored]))
    order = tf.where(is_turned, [1, 0, 2], [0, 1, 2])
    result = tf.transpose(tf.reverse(pixels, axes), order)
    return tf.ensure_shape(result, [None, None, pixels.shape[2]])


@functools.cache
def _header_function():
    """A traced function from bytes to height, width and orientation."""

    def read(contents, kind):
        orientation = _orientation(contents, kind)
        return tf.concat([_stored_size(contents, kind), orientation[None]], 0)

    @_own_function
    def header(contents):
        kinds = range(UNKNOWN + 1)
        branches = [functools.partial(read, contents, kind) for kind in kinds]
        found = tf.switch_case(_image_kind(contents), branches)
        return tf.ensure_shape(found, [3])

    return header.get_concrete_function(tf.TensorSpec([], "string"))


@functools.cache
def _decoder(channels):
    """A traced function from bytes and a background to pixels as stored."""

    def decode(contents, num_channels):
        image = tf.io.decode_image(
            contents, channels=num_channels, expand_animations=False
        )
        return tf.ensure_shape(image, [None, None, num_channels])

    def gray(pixels):
        return tf.image.rgb_to_grayscale(pixels) if channels == 1 else pixels

    def shown(contents, background, is_png):
        """A file that may be transparent."""
        pixels = decode(contents, 4)
        color, alpha = pixels[..., :3], tf.cast(pixels[..., 3:], "int32")
        is_gray, opaque = is_png and channels == 1, 255
        if is_png:
            # TensorFlow fills in the alpha of 1, 2 and 4 bits unscaled.
            bits = tf.minimum(_number(contents, 24, 1), 8)
            opaque = tf.bitwise.left_shift(1, bits) - 1
        is_opaque = tf.reduce_all(alpha == opaque)
        return tf.cond(
            is_opaque | (tf.reduce_min(alpha) == 255),
            # Only JPEG and PNG decode to gray values themselves.
            lambda: decode(contents, 1) if is_gray else gray(color),
            lambda: gray(_drawn(color, alpha, background)),
        )

    @_own_function
    def decoded(contents, background):
        kind = _image_kind(contents)
        # With 4 channels TensorFlow 2.20 takes animated WebP files too, and
        # writes outside its memory.
        branches = [
            (kind == PNG, lambda: shown(contents, background, True)),
            (
                (kind == WEBP) & _is_clear_webp(contents),
                lambda: shown(contents, background, False),
            ),
        ]
        return tf.case(branches, default=lambda: gray(decode(contents, 3)))

    return decoded.get_concrete_function(
        tf.TensorSpec([], "string"), tf.TensorSpec([3], "int32")
    )


def _drawn(color, alpha, background):
    """Draws partly transparent pixels on a background, rounded to uint8."""
    mixed = tf.cast(color, "int32") * alpha + background * (255 - alpha)
    return tf.cast((mixed + 127) // 255, "uint8")


def _is_clear_webp(contents):
    """Whether a WebP file is one image that may be transparent."""
    word = _bytes(contents, 12, 4)
    # Flags of an extended file: 2 for an animation, 16 for transparency.
    is_extended = (word == b"VP8X") & (_number(contents, 20, 1) & 18 == 16)
    is_lossless = (word == b"VP8L") & (_number(contents, 24, 1) & 16 == 16)
    return is_extended | is_lossless


def _own_function(function):
    """Makes a function that TensorFlow does not copy into its caller.

    It walks over the operations of a branch that is not taken too, which costs
    more than a small image takes to decode.
    """
    return tf.function(
        function, autograph=False, experimental_attributes={"_noinline": True}
    )


def _moves(orientation):
    """Returns whether to transpose, to flip vertically and horizontally."""
    return tf.unstack(tf.gather(MOVES, orientation) == 1)


def _image_kind(contents):
    """Returns the format by the first bytes, int32 scalar."""

    def holds(at, word):
        return _bytes(contents, at, len(word)) == word

    found = [
        holds(0, b"\xff\xd8\xff"),
        holds(0, b"\x89PNG\r\n\x1a\n"),
        holds(0, b"BM"),
        holds(0, b"RIFF") & holds(8, b"WEBP"),
        tf.constant(True),
    ]
    return tf.argmax(tf.cast(tf.stack(found), "int32"), output_type="int32")


def _stored_size(contents, kind):
    """Reads height and width as stored, (2,); zeros or less if damaged."""
    number = functools.partial(_number, contents)
    if kind == JPEG:
        return tf.io.extract_jpeg_shape(contents)[:2]
    if kind == PNG:
        sides = _bytes(contents, 16, 8)
        return tf.io.decode_raw(sides, "int32", little_endian=False)[::-1]
    if kind == BMP:
        # Rows are stored upwards where the height is positive, else down.
        # With a palette, whose indices would be taken for grays, it is refused.
        is_plain = (number(28, 2) == 24) & (number(30, 4) == 0)
        sides = tf.abs(tf.stack([number(22, 4), number(18, 4)]))
        return tf.where(is_plain, sides, 0)
    if kind == WEBP:
        bits = number(21, 4)
        sizes = [
            [number(27, 3) + 1, number(24, 3) + 1],
            [bits // 2**14 % 2**14 + 1, bits % 2**14 + 1],
            [number(28, 2) % 2**14, number(26, 2) % 2**14],
        ]
        is_it = tf.constant(["VP8X", "VP8L", "VP8 "]) == _bytes(contents, 12, 4)
        return tf.reduce_sum(tf.where(is_it[:, None], sizes, 0), axis=0)
    return tf.zeros(2, "int32")


def _orientation(contents, kind):
    """Reads the orientation, 1 (as stored) to 8; 1 where none is valid."""
    # The first word of Exif with a TIFF header after it begins the data. To
    # follow the segments would cost more than decoding a small image.
    if kind not in _EXIF_WORDS:
        return tf.constant(1)
    if kind == JPEG:  # These data are at its beginning.
        contents = tf.strings.substr(contents, 0, 2**20)
    # The limit is for hostile files, which repeat the word.
    blocks = tf.strings.split(contents, _EXIF_WORDS[kind], maxsplit=64)
    blocks = tf.strings.substr(blocks, 0, _EXIF_BYTES)
    if kind == WEBP:  # the length of the chunk
        blocks = tf.strings.regex_replace(blocks, r"^\C{4}", "")
    # Some writers repeat the word of JPEG files.
    blocks = tf.strings.regex_replace(blocks, r"^Exif\x00\x00", "")
    is_tiff = tf.strings.regex_full_match(blocks, r"(II\*\x00|MM\x00\*)\C*")
    blocks = tf.boolean_mask(blocks, is_tiff)
    return tf.cond(
        tf.size(blocks) > 0,
        lambda: _tiff_orientation(blocks[0]),
        lambda: tf.constant(1),
    )


def _tiff_orientation(block):
    """Reads the orientation from the first directory of a TIFF block."""
    # Zeros follow the block: what lies outside reads as 0.
    data = tf.io.decode_raw(block + b"\0" * 2 * _EXIF_BYTES, "uint8")
    data = tf.cast(data[: _EXIF_BYTES + 32], "int32")
    is_little = data[0] == ord("I")
    # The number of two bytes at each place.
    order = tf.where(is_little, [1, 256], [256, 1])
    words = order[0] * data[:-1] + order[1] * data[1:]
    first, last = tf.where(is_little, [4, 6], [6, 4]), _EXIF_BYTES
    directory = words[first[0]] + 2**16 * tf.minimum(words[first[1]], 1)
    directory = tf.minimum(directory, last)
    places = directory + 2 + 12 * tf.range(words[directory])
    places = tf.boolean_mask(places, places < last)
    # Tag, type (3: two bytes, 4: four), the number of values, the first one.
    is_it = tf.gather(words, places) == _ORIENTATION_TAG
    form = tf.gather(words, places + 2)
    is_it &= (form == 3) | (form == 4)
    last_word = tf.where(is_little | (form == 3), 8, 10)
    value = tf.gather(words, places + last_word)
    value = tf.reduce_max(tf.where(is_it, value, 0))
    return tf.where((value >= 1) & (value <= 8), value, 1)


def _number(contents, at, length):
    """Reads an integer whose least significant byte comes first, int32."""
    padded = _bytes(contents, at, length) + b"\0" * (4 - length)
    return tf.io.decode_raw(padded, "int32")[0]


def _bytes(contents, at, length):
    """Returns some bytes, zeros beyond the end."""
    padded = tf.strings.substr(contents, 0, at + length) + b"\0" * (at + length)
    return tf.strings.substr(padded, at, length)
