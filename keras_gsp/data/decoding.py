"""Decoding, cropping and resizing of images, with Pillow.

A JPEG is decoded at the smallest of 1, 1/2, 1/4 and 1/8 of its size that still
has twice the pixels that are wanted; then every image is resized with an
anti-aliased bilinear filter. So a photograph and its thumbnail come out alike,
and 12 megapixels cost little more than their thumbnail. `retrieval.serving` has
the same rule for a SavedModel.
"""

import io
import math
import re
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

MAX_PIXELS = 50_000_000
IMAGE_ENDINGS = tuple(".jpg .jpeg .png .bmp .webp .avif .heic .heif".split())
# What transparent pixels are drawn on: red, green, blue.
WHITE = (255, 255, 255)

_FORMATS = ["JPEG", "PNG", "BMP", "WEBP", "AVIF"]
_JPEG = "JPEG", "MPO"  # A camera may append previews to a JPEG.
_IS_HEIF = re.compile(rb"....ftyp(heic|heix|heim|heis|hevc|mif1|msf1)", re.S)
# Where Exif data begin, by format.
_TIFF = rb"(?:Exif\0\0)?(II\*\0|MM\0\*)"
_EXIF = {
    "JPEG": re.compile(rb"Exif\0\0" + _TIFF, re.S),
    "PNG": re.compile(rb"eXIf" + _TIFF, re.S),
    "WEBP": re.compile(rb"EXIF.{4}" + _TIFF, re.S),
}
_EXIF_BYTES = 2**16
_ORIENTATION_TAG = 0x0112
# By orientation, from 1: transpose, flip vertically, flip horizontally.
MOVES = [[0, 0, 0]] * 2 + [[0, 0, 1], [0, 1, 1], [0, 1, 0]]
MOVES += [[1, 0, 0], [1, 1, 0], [1, 1, 1], [1, 0, 1]]

Sides = tuple[int, int]


def image_size(contents: bytes) -> Sides:
    """Returns height and width of an encoded image, without decoding it.

    In pixels, after the Exif orientation is applied. Another format or a
    damaged header is a `ValueError`; `decode_image` has an example.
    """
    image, orientation = _opened(contents)
    return image.size if orientation >= 5 else image.size[::-1]


def decode_image(
    contents: bytes,
    *,
    max_pixels: int = MAX_PIXELS,
    background: tuple[int, int, int] = WHITE,
) -> np.ndarray:
    """Decodes a whole image, upright, unless it is too large.

    Args:
        contents: bytes of a JPEG, PNG, BMP, WebP or AVIF file, or with
            `pip install "keras-gsp[heif]"` of a HEIC file.
        max_pixels: largest number of pixels to decode.
        background: color behind transparent pixels, red, green and blue in
            [0, 255].

    Returns:
        (height, width, 3), uint8. Another format, a damaged file or too many
        pixels are a `ValueError`.

    Example:

    ```python
    import io
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.zeros((30, 40, 3), "uint8")).save(file, "PNG")
    assert gsp.data.image_size(file.getvalue()) == (30, 40)
    assert gsp.data.decode_image(file.getvalue()).shape == (30, 40, 3)
    ```
    """
    return cut_encoded(
        contents,
        lambda height, width: (0, 0, height, width),
        lambda height, width: (height, width),
        max_pixels=max_pixels,
        background=background,
    )


def check_image(contents: bytes, max_pixels: int) -> None:
    """Raises `ValueError` unless a file can be decoded; reads all its bytes."""
    cut_encoded(
        contents,
        lambda height, width: (0, 0, height, width),
        lambda height, width: (1, 1),
        max_pixels=max_pixels,
    )


def cut_encoded(
    contents: bytes,
    window: Callable[[int, int], Any],
    size: Callable[[int, int], Sides],
    *,
    channels: int = 3,
    max_pixels: int = MAX_PIXELS,
    background: tuple[int, int, int] = WHITE,
) -> np.ndarray:
    """Decodes a window of an encoded image and resizes it.

    `window` maps height and width of the upright image to (top, left, height,
    width), `size` maps those of the window to those of the result.
    """
    image, orientation = _opened(contents)
    is_turned, is_upside_down, is_mirrored = MOVES[orientation]
    width, height = image.size
    if height * width > max_pixels:
        raise ValueError(
            f"An image must have at most max_pixels={max_pixels} pixels. "
            f"Received: {width} x {height}."
        )
    sides: Any = (width, height) if is_turned else (height, width)
    top, left, *sides = map(int, window(*sides))
    target = size(*sides)
    if is_turned:
        top, left, sides, target = left, top, sides[::-1], target[::-1]
    if is_upside_down:
        top = height - top - sides[0]
    if is_mirrored:
        left = width - left - sides[1]
    scale = 1
    if image.format in _JPEG:
        scale = decoding_scale(sides, target)
        mode = "L" if channels == 1 else None
        image.draft(mode, (width // scale, height // scale))
    image = _converted(image, channels, background)
    ends = top + sides[0], left + sides[1]
    pixels = _resized(image, (top, left), ends, target, scale)
    pixels = pixels[:: 1 - 2 * is_upside_down, :: 1 - 2 * is_mirrored]
    if is_turned:
        pixels = pixels.swapaxes(0, 1)
    return np.ascontiguousarray(pixels)


def cut_array(
    pixels: np.ndarray,
    window: Callable[[int, int], Any],
    size: Callable[[int, int], Sides],
) -> np.ndarray:
    """As `cut_encoded`, of pixels (height, width, channels), uint8."""
    from PIL import Image

    top, left, height, width = map(int, window(*pixels.shape[:2]))
    pixels = pixels[top : top + height, left : left + width]
    target = size(height, width)
    if target == (height, width):
        return pixels
    # Pillow has images of three channels and of one.
    parts = [pixels]
    if pixels.shape[2] != 3:
        parts = np.split(pixels, pixels.shape[2], axis=2)
        parts = [part[..., 0] for part in parts]
    images = [Image.fromarray(np.ascontiguousarray(part)) for part in parts]
    resized = [_resized(x, (0, 0), (height, width), target) for x in images]
    return resized[0] if len(resized) == 1 else np.concatenate(resized, axis=2)


def decoding_scale(sides: Any, target: Any) -> int:
    """Returns by how much a JPEG is decoded smaller: 1, 2, 4 or 8."""
    ratio = min(s / (2 * t) for s, t in zip(sides, target, strict=True))
    return max(scale for scale in (1, 2, 4, 8) if scale <= max(ratio, 1))


def _opened(contents):
    """Returns an image whose header was read, and its orientation, 1 to 8."""
    from PIL import Image

    if _IS_HEIF.match(contents):
        _register_heif()
    try:
        formats = [*_FORMATS, "HEIF"] if "HEIF" in Image.OPEN else _FORMATS
        image = Image.open(io.BytesIO(contents), formats=formats)
    except Image.DecompressionBombError as error:
        raise ValueError(
            f"An image must have at most max_pixels pixels. Received: {error}"
        ) from error
    # Pillow's plugins raise errors of many kinds on damaged files.
    except Exception as error:  # noqa: BLE001
        raise ValueError(
            "`contents` must be a JPEG, PNG, BMP, WebP, AVIF or HEIC file. "
            f"Received: {len(contents)} bytes that begin with {contents[:8]!r}."
        ) from error
    if image.format == "WEBP" and getattr(image, "is_animated", False):
        raise ValueError(
            "`contents` must be a whole image. Received: an animated file."
        )
    return image, _orientation(image, contents)


def _register_heif():
    try:
        import pillow_heif
    except ModuleNotFoundError as error:
        raise ValueError(
            "HEIC files are read by pillow-heif: install it with "
            '`pip install "keras-gsp[heif]"`. Received: a HEIC file.'
        ) from error
    pillow_heif.register_heif_opener()


def _orientation(image, contents):
    """Reads the Exif orientation as the graph decoder does; 1 if none."""
    pattern = _EXIF.get("JPEG" if image.format in _JPEG else image.format)
    if pattern is None:
        value = image.getexif().get(_ORIENTATION_TAG, 1)
        return value if value in range(1, 9) else 1
    # A JPEG has these data at its beginning.
    end = 2**20 if image.format in _JPEG else len(contents)
    found = pattern.search(contents, 0, end)
    start = found.start(1) if found else end
    return _tiff_orientation(contents[start : start + _EXIF_BYTES])


def _tiff_orientation(block):
    """Reads the orientation from the first directory of a TIFF block."""
    order = "<" if block.startswith(b"II") else ">"
    number = {3: "H", 4: "I"}  # by type of the value
    try:
        (start,) = struct.unpack_from(order + "I", block, 4)
        (count,) = struct.unpack_from(order + "H", block, start)
        for at in range(start + 2, start + 2 + 12 * count, 12):
            tag, form = struct.unpack_from(order + "HH", block, at)
            if tag == _ORIENTATION_TAG and form in number:
                (value,) = struct.unpack_from(
                    order + number[form], block, at + 8
                )
                return value if 1 <= value <= 8 else 1
    except struct.error:
        pass
    return 1


def _converted(image, channels, background):
    """Decodes an image to gray or to red, green and blue."""
    from PIL import Image

    try:
        image.load()
    except Exception as error:  # noqa: BLE001
        raise ValueError(
            f"`contents` must be a whole image. Received: {error}."
        ) from error
    clear = image.info.get("transparency")
    if image.mode.startswith("I"):  # 16 bits of gray
        gray = np.asarray(image).astype("int64")
        image = Image.fromarray((gray >> 8).astype("uint8"))
        if isinstance(clear, int):
            image.putalpha(Image.fromarray(255 * (gray != clear).astype("u1")))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        behind = Image.new("RGBA", image.size, (*background, 255))
        image = Image.alpha_composite(behind, image)
    mode = "L" if channels == 1 else "RGB"
    return image if image.mode == mode else image.convert(mode)


def _resized(image, start, end, target, scale=1):
    """Resizes a window, in pixels before `image` was scaled, to an array."""
    from PIL import Image

    top, left, bottom, right = (edge / scale for edge in (*start, *end))
    # Nothing outside of the window is seen, but for a part of a pixel.
    corner = math.floor(left), math.floor(top)
    crop = *corner, math.ceil(right), math.ceil(bottom)
    if crop != (0, 0, *image.size):
        image = image.crop(crop)
    if image.size != target[::-1] or scale > 1:
        edges = left, top, right, bottom
        box: Any = [edge - corner[n % 2] for n, edge in enumerate(edges)]
        image = image.resize(target[::-1], Image.Resampling.BILINEAR, box)
    pixels = np.asarray(image)
    return pixels if pixels.ndim == 3 else pixels[..., None]
