"""Zero-shot retrieval of letters among symbols, rendered on the spot."""

import unicodedata
from functools import lru_cache

import numpy as np
from tqdm import tqdm

from training.datasets.glyph_outlines import OUTLINE_SIZE, distinct_outlines
from training.datasets.image_set import ImageSet, RetrievalSplits

CELL = 24
"""Side of one of the four cells of a canvas, pixels."""
EXTENT = (13.0, 21.0)
"""Longer side of a drawn character, pixels, uniform."""
ROTATION = 15.0
"""Largest rotation to either side, degrees, uniform."""
BLOCK = 250
"""Images rendered at a time."""


@lru_cache(maxsize=4)
def load(
    *,
    train_classes: int = 150,
    train_samples: int = 60,
    validation_classes: int = 60,
    test_classes: int = 100,
    test_samples: int = 20,
    has_distractors: bool = True,
    seed: int = 0,
) -> RetrievalSplits:
    """Renders the `glyphs` data set; the same arguments, the same pixels.

    A class is a letter. An image is that letter in one of 12 faces, rotated,
    scaled and shifted, in one cell of a 2x2 canvas; the other three cells
    hold symbols. Training, validation and test images share neither letters
    nor symbols.

    Args:
        train_classes: Letters to learn from.
        train_samples: Images of each.
        validation_classes: Letters to choose the best weights by.
        test_classes: Letters to score.
        test_samples: Images of each test or validation letter.
        has_distractors: Whether the other three cells hold symbols or stay
            empty.
        seed: Seed of the split and of every image.

    Returns:
        `RetrievalSplits` of (48, 48, 3) images, dark on light.

    Raises:
        ValueError: more letters are asked for than there are.
    """
    letters, symbols = distinct_outlines()
    counts = train_classes, validation_classes, test_classes
    if sum(counts) > len(letters):
        raise ValueError(
            "`train_classes + validation_classes + test_classes` must be at "
            f"most {len(letters)}. Received: {' + '.join(map(str, counts))}."
        )
    generator = np.random.default_rng(seed)
    # Every side gets the share of symbols that it has of the letters.
    sides = zip(
        ("train", "validation", "test"),
        _disjoint(letters, counts, generator),
        _disjoint(symbols, _shares(counts, len(symbols)), generator),
        (train_samples, test_samples, test_samples),
        generator.spawn(3),
        strict=True,
    )
    return RetrievalSplits(
        name="glyphs",
        **{
            side: _render(
                {c: letters[c] for c in of_letters},
                [symbols[c] for c in of_symbols] if has_distractors else [],
                samples,
                child,
                side,
            )
            for side, of_letters, of_symbols, samples, child in sides
        },
    )


def _disjoint(characters, counts, generator):
    shuffled = generator.permutation(list(characters))
    return np.split(shuffled, np.cumsum(counts))[: len(counts)]


def _shares(counts, total):
    return [total * count // sum(counts) for count in counts]


def _render(letters, symbols, samples, generator, side):
    labels = np.repeat(np.arange(len(letters)), samples)
    outlines = np.stack(list(letters.values()))
    images = np.empty((len(labels), 2 * CELL, 2 * CELL), "uint8")
    blocks = range(0, len(labels), BLOCK)
    for start in tqdm(blocks, desc=f"glyphs, {side}", leave=False):
        block = slice(start, start + BLOCK)
        drawn = outlines[labels[block], None]
        if symbols:
            drawn = np.hstack([drawn, _three_of(symbols, drawn, generator)])
        images[block] = _canvases(drawn, generator)
    return ImageSet(
        labels=labels,
        class_names=tuple(f"{c} {unicodedata.name(c)}" for c in letters),
        images=np.repeat(images[..., None], 3, axis=-1),
    )


def _three_of(symbols, drawn, generator):
    """Three different symbols per image."""
    order = generator.random((len(drawn), len(symbols)))
    return np.stack(symbols)[np.argpartition(order, 3)[:, :3]]


def _canvases(drawn, generator):
    """Draws up to four characters per image, each in a cell of its own.

    Args:
        drawn: (num_images, up to 4, num_faces, OUTLINE_SIZE, OUTLINE_SIZE).
        generator: Draws faces, cells and jitter.

    Returns:
        (num_images, 2 * CELL, 2 * CELL), uint8.
    """
    count, characters, faces = drawn.shape[:3]
    face = generator.integers(faces, size=(count, characters))
    rows = np.arange(count)[:, None]
    outlines = drawn[rows, np.arange(characters), face]
    cells = generator.permuted(np.tile(np.arange(4), (count, 1)), axis=1)
    canvas = np.zeros((count, 4, CELL, CELL), "uint8")
    ink = _jittered(outlines.reshape(-1, *outlines.shape[2:]), generator)
    canvas[rows, cells[:, :characters]] = ink.reshape(
        count, characters, CELL, CELL
    )
    canvas = canvas.reshape(count, 2, 2, CELL, CELL).transpose(0, 1, 3, 2, 4)
    return 255 - canvas.reshape(count, 2 * CELL, 2 * CELL)


def _jittered(outlines, generator):
    """Each outline scaled, rotated and shifted inside a cell."""
    count = len(outlines)
    extent = generator.uniform(*EXTENT, size=(count, 1, 1))
    angle = np.deg2rad(generator.uniform(-ROTATION, ROTATION, (count, 1, 1)))
    center = generator.uniform(-1, 1, (2, count, 1, 1)) * (CELL - extent) / 2
    # Where in the outline, counted from its centre, each pixel comes from.
    pixel = np.arange(CELL) + 0.5 - CELL / 2
    y, x = pixel[:, None] - center[0], pixel[None, :] - center[1]
    across, down = np.cos(angle), np.sin(angle)
    scale = OUTLINE_SIZE / extent
    return _bilinear(
        outlines,
        scale * (across * y - down * x) + (OUTLINE_SIZE - 1) / 2,
        scale * (across * x + down * y) + (OUTLINE_SIZE - 1) / 2,
    )


def _bilinear(images, rows, columns):
    """Samples each image (n, size, size) at (n, h, w); 0 is around it."""
    images = np.pad(images, ((0, 0), (1, 1), (1, 1))).astype("float32")
    last = images.shape[1] - 1
    rows = np.clip(rows + 1, 0, last).astype("float32")
    columns = np.clip(columns + 1, 0, last).astype("float32")
    top = np.minimum(rows.astype("int32"), last - 1)
    left = np.minimum(columns.astype("int32"), last - 1)
    down, right = rows - top, columns - left
    image = np.arange(len(images))[:, None, None]
    upper, lower = (
        images[image, row, left] * (1 - right)
        + images[image, row, left + 1] * right
        for row in (top, top + 1)
    )
    return np.rint(upper * (1 - down) + lower * down).astype("uint8")
