"""Decoding of images with Pillow, where TensorFlow is not installed.

The pixels are those of `decoding`, but for a few gray levels at the edge of a
crop of a JPEG: TensorFlow decodes nothing beside the crop.
"""

import io
from collections.abc import Callable
from typing import Any

import numpy as np

# What transparent pixels are drawn on: red, green, blue.
WHITE = (255, 255, 255)
_FORMATS = "JPEG", "PNG", "BMP", "WEBP"
_ORIENTATION_TAG = 0x0112


def check_num_pixels(height: int, width: int, max_pixels: int) -> None:
    """Raises `ValueError` for an image of more than `max_pixels` pixels."""
    if height * width > max_pixels:
        raise ValueError(
            f"An image must have at most max_pixels={max_pixels} pixels. "
            f"Received: {width} x {height}."
        )


def image_size(contents: bytes) -> tuple[int, int]:
    """Returns height and width of the upright image."""
    image = _opened(contents)
    width, height = image.size
    if image.getexif().get(_ORIENTATION_TAG) in (5, 6, 7, 8):
        return width, height
    return height, width


def decoded(
    contents: bytes,
    max_pixels: int,
    background: tuple[int, int, int] = WHITE,
    channels: int = 3,
) -> np.ndarray:
    """Returns the pixels of the upright image, (height, width, channels)."""
    from PIL import ImageOps

    image = _opened(contents)
    check_num_pixels(image.height, image.width, max_pixels)
    if image.format == "WEBP" and getattr(image, "is_animated", False):
        raise ValueError(
            "`contents` must be a whole image. Received: an animated file."
        )
    try:
        if channels == 1:
            image.draft("L", None)
        image = ImageOps.exif_transpose(image)
    except (OSError, SyntaxError) as error:
        raise ValueError(
            f"`contents` must be a whole image. Received: {error}."
        ) from error
    if image.mode.startswith("I"):  # 16 bits of gray
        gray = np.asarray(image).astype("int64") >> 8
        pixels = gray.astype("uint8")[..., None]
        return np.repeat(pixels, channels, axis=-1)
    if image.has_transparency_data:
        image = _drawn(np.asarray(image.convert("RGBA")), background)
    pixels = np.asarray(image.convert("L" if channels == 1 else "RGB"))
    return pixels.reshape(*pixels.shape[:2], channels)


def cut(pixels: np.ndarray, window: Any, size: Any) -> np.ndarray:
    """Crops to a window and resizes bilinearly, as `decoding` does."""
    top, left, height, width = (int(number) for number in window)
    pixels = pixels[top : top + height, left : left + width]
    if None in size:
        return pixels
    pixels = pixels.astype("float32")
    for axis, side in enumerate(size):
        scale = np.float32(pixels.shape[axis] / side)
        at = (np.arange(side, dtype="float32") + 0.5) * scale - np.float32(0.5)
        low = np.floor(at)
        weights = (at - low).reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
        rows = low.astype("int64")
        first = pixels.take(rows, axis, mode="clip")
        second = pixels.take(rows + 1, axis, mode="clip")
        pixels = first + (second - first) * weights
    return np.clip(np.round(pixels), 0, 255).astype("uint8")


def cut_encoded(
    contents: bytes,
    size: Any,
    window: Callable[[int, int], Any],
    *,
    channels: int,
    max_pixels: int,
    background: tuple[int, int, int],
) -> np.ndarray:
    """Decodes an image, crops the upright image to a window, resizes it."""
    pixels = decoded(contents, max_pixels, background, channels)
    return cut(pixels, window(*pixels.shape[:2]), size)


def _opened(contents):
    """Returns an image whose header was read; nothing is decoded yet."""
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "Reading images takes TensorFlow or Pillow. Install one: "
            'pip install "keras-gsp[torch]" has Pillow.',
            name=error.name,
        ) from error
    try:
        return Image.open(io.BytesIO(contents), formats=_FORMATS)
    except Image.DecompressionBombError as error:
        raise ValueError(
            f"An image must have at most max_pixels pixels. Received: {error}"
        ) from error
    except (OSError, SyntaxError, ValueError) as error:
        raise ValueError(
            "`contents` must be a JPEG, PNG, BMP or WebP file. Received: "
            f"{len(contents)} bytes that begin with {contents[:8]!r}."
        ) from error


def _drawn(pixels, background):
    from PIL import Image

    color, alpha = pixels[..., :3].astype("int32"), pixels[..., 3:].astype(int)
    mixed = color * alpha + np.asarray(background) * (255 - alpha)
    return Image.fromarray(((mixed + 127) // 255).astype("uint8"))
