"""Clutter: one picture on a canvas, before many smaller ones that distract."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from training.datasets.collage import folder_parts, load_pictures
from training.datasets.image_set import RetrievalSplits

# Sides as fractions of the canvas: the picture that counts, the others.
SIZES = (0.45, 0.6)
DISTRACTOR_SIZES = (0.2, 0.4)
# Brighter than this in all channels is paper, not drawing.
PAPER = 235


def clutter_splits(
    data_dir: str | Path,
    *,
    canvas_size: int = 96,
    num_distractors: int = 8,
    images_per_class: int | None = None,
    seed: int = 0,
) -> RetrievalSplits:
    """Pastes every drawing of an image folder on a canvas full of others.

    For drawings on white paper, such as emoji. A fifth of the classes only
    distract, each of their images in one split; the other classes are split
    2 : 1 : 2 for training, validation and test. The picture to recognize is
    larger than the `num_distractors` others and in front of them.

    Raises `ValueError` for fewer than four classes to recognize.
    """
    rng = np.random.default_rng(seed)
    pictures = load_pictures(data_dir, canvas_size, images_per_class)
    made = {}
    for split, (front, background) in folder_parts(pictures, rng).items():
        images = compose_clutter(front.images, background, num_distractors, rng)
        made[split] = replace(front, images=images)
    return RetrievalSplits(name="clutter", **made)


def compose_clutter(
    pictures: np.ndarray,
    backgrounds: np.ndarray,
    num_distractors: int,
    seed: int | np.random.Generator = 0,
) -> np.ndarray:
    """Pastes each picture on a canvas of its own size, over distractors.

    Pictures and backgrounds are (num_images, side, side, 3), uint8, drawn on
    white, and so is the result.
    """
    if num_distractors and not len(backgrounds):
        raise ValueError(
            "`backgrounds` must hold an image. Received: none for "
            f"{len(pictures)} pictures; take more images of each class."
        )
    rng = np.random.default_rng(seed)
    canvases = np.empty_like(pictures)
    for canvas, picture in zip(canvases, pictures, strict=True):
        canvas[:] = rng.integers(110, 256, 3, "uint8")
        for row in rng.integers(len(backgrounds), size=num_distractors):
            _paste(canvas, backgrounds[row], DISTRACTOR_SIZES, rng)
        _paste(canvas, picture, SIZES, rng)
    return canvases


def _paste(canvas, picture, sizes, rng):
    """Draws a shrunk picture at random; white paper is transparent."""
    from PIL import Image

    side = len(canvas)
    size = max(1, round(side * rng.uniform(*sizes)))
    bilinear = Image.Resampling.BILINEAR
    small = np.asarray(Image.fromarray(picture).resize((size, size), bilinear))
    top, left = rng.integers(side - size + 1, size=2)
    window = canvas[top : top + size, left : left + size]
    is_drawn = (small < PAPER).any(axis=-1)
    window[is_drawn] = small[is_drawn]
