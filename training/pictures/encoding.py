"""Encode images for display."""

import io

import numpy as np
from PIL import Image


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
