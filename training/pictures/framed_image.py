"""Images in frames, with what was found in them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from training.pictures.encoding import decoded_image
from training.pictures.palette import BLACK

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
    """Draws encoded contents or pixels, perhaps under a veil of weights."""
    pixels = image if isinstance(image, np.ndarray) else decoded_image(image)
    # Sharp: small images have pixels, not a blur of them.
    shown = axis.imshow(pixels, interpolation="nearest")
    if weights is not None:
        veil = np.ones((*weights.shape, 4))
        veil[..., 3] = VEIL * (1 - weights / max(float(weights.max()), 1e-12))
        axis.imshow(veil, extent=shown.get_extent(), interpolation="nearest")
    name = title.partition("\n")[0].removeprefix("query: ")
    axis.set_title(title, fontsize=14 if len(name) == 1 else 9)
    axis.axis("on")
    axis.set(xticks=[], yticks=[])
    for spine in axis.spines.values():
        spine.set(visible=True, color=color, linewidth=width, linestyle=style)


def outline(axis: Any, box: Sequence[float] | None) -> None:
    """Draws a box, (left, top, width, height) in shares, on an image."""
    from matplotlib.patches import Rectangle

    if box is None:
        return
    left, top, width, height = box
    for color, line in (("white", 3.5), (BLACK, 1.5)):
        axis.add_patch(
            Rectangle(
                (left, 1 - top - height),
                width,
                height,
                fill=False,
                transform=axis.transAxes,
                edgecolor=color,
                linewidth=line,
            )
        )
