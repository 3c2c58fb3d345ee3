"""Images in frames, with what was found in them, or encoded for a page."""

import io
from typing import Any

import numpy as np
from PIL import Image

GRAY = "#8a8a8a"
VEIL = 0.75  # opacity of the white veil over what is left out


def draw_image(
    axis: Any,
    image: np.ndarray | bytes | None,
    weights: np.ndarray | None = None,
    title: str = "",
    color: str = GRAY,
    width: float = 0.5,
    style: str = "-",
) -> None:
    """Draws encoded contents or pixels, perhaps under a veil of weights.

    Gray where the contents cannot be read.
    """
    import keras_gsp as gsp

    pixels = image
    if not isinstance(image, np.ndarray):
        try:
            pixels = gsp.data.decode_image(image or b"")
        except ValueError:
            pixels = np.full((8, 8, 3), 200, "uint8")
    # Sharp: small images have pixels, not a blur of them.
    shown = axis.imshow(pixels, interpolation="nearest")
    if weights is not None:
        veil = np.ones((*weights.shape, 4))
        veil[..., 3] = VEIL * (1 - weights / max(float(weights.max()), 1e-12))
        axis.imshow(veil, extent=shown.get_extent(), interpolation="nearest")
    name = title.partition("\n")[0]
    axis.set_title(title, fontsize=14 if len(name) == 1 else 9)
    axis.axis("on")
    axis.set(xticks=[], yticks=[])
    for spine in axis.spines.values():
        spine.set(visible=True, color=color, linewidth=width, linestyle=style)


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
