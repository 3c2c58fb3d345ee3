"""Images for display: decoded, cropped as they are embedded, encoded."""

import io

import numpy as np
from PIL import Image


def decoded_image(
    contents: bytes | None, crop_fraction: float | None = None
) -> np.ndarray:
    """Decodes the embedded part of an image; gray where it is unreadable.

    The embedded part is a centered square, whose side is `crop_fraction` of
    the shorter side; None keeps the whole image.
    """
    import keras_gsp as gsp

    try:
        image = gsp.data.decode_image(contents or b"")
    except ValueError:
        return np.full((8, 8, 3), 200, "uint8")
    return embedded_part(image, crop_fraction)


def embedded_part(image: np.ndarray, crop_fraction: float | None) -> np.ndarray:
    """Returns the centered square that is embedded, or all pixels."""
    if crop_fraction is None:
        return image
    height, width = image.shape[:2]
    side = max(1, round(min(width, height) * crop_fraction))
    left, top = (width - side) // 2, (height - side) // 2
    return image[top : top + side, left : left + side]


def encoded_image(
    pixels: np.ndarray, format: str = "WEBP", side: int | None = None
) -> bytes:
    """Encodes an image, uint8, not larger than `side` pixels."""
    image = Image.fromarray(pixels)
    if side is not None:
        image.thumbnail((side, side), Image.Resampling.BOX)
    file = io.BytesIO()
    image.save(file, format, quality=80)
    return file.getvalue()
