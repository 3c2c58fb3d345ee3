"""Pictures inside a page: small, each once, as text."""

import base64
import io
from typing import Any

import numpy as np
from PIL import Image

QUALITY = 80
COLUMNS = 40
"""Tiles beside each other in a sheet."""


def shrunk(pixels: np.ndarray, side: int) -> np.ndarray:
    """Images of at most `side` pixels, (images, height, width, 3), uint8."""
    height, width = pixels.shape[1:3]
    scale = side / max(height, width)
    if scale >= 1:
        return pixels
    size = max(1, round(width * scale)), max(1, round(height * scale))
    found = [
        Image.fromarray(one).resize(size, Image.Resampling.BOX)
        for one in pixels
    ]
    return np.stack([np.asarray(one) for one in found])


def picture_text(pixels: np.ndarray, quality: int = QUALITY) -> str:
    """One image as a `data:` address.

    Args:
        pixels: (height, width, 3), uint8.
        quality: Of WebP, in [0, 100].
    """
    contents = io.BytesIO()
    Image.fromarray(pixels).save(contents, "WEBP", quality=quality, method=4)
    text = base64.b64encode(contents.getvalue()).decode()
    return f"data:image/webp;base64,{text}"


def sheet_texts(tiles: np.ndarray, most_bytes: int) -> dict[str, Any]:
    """Many images as one picture, as coarse as the room for it asks for.

    Args:
        tiles: (images, height, width, 3), uint8.
        most_bytes: Room for the text.

    Returns:
        Dict with `picture`, a `data:` address, and `columns`, `rows`,
        `width`, `height` of the sheet and its tiles.
    """
    count, height, width = tiles.shape[:3]
    columns = min(COLUMNS, count)
    rows = -(-count // columns)
    sheet = np.zeros((rows * height, columns * width, 3), "uint8")
    for place, tile in enumerate(tiles):
        top, left = place // columns * height, place % columns * width
        sheet[top : top + height, left : left + width] = tile
    for quality in (75, 55, 35, 15):
        picture = picture_text(sheet, quality)
        if len(picture) <= most_bytes:
            break
    return {
        "picture": picture,
        "columns": columns,
        "rows": rows,
        "width": width,
        "height": height,
    }
