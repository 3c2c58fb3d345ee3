"""Zero-shot retrieval of letters among symbols, rendered on the spot."""

import unicodedata
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from keras_gsp.data import ImageSet
from training.datasets.image_set import RetrievalSplits

CELL = 24  # side of one cell of a canvas, pixels
EXTENT = (13.0, 21.0)  # longer side of a drawn character, pixels, uniform
ROTATION = 15.0  # largest rotation to either side, degrees, uniform
BLOCK = 250  # images rendered at a time
OUTLINE_SIZE = 24  # longer side of an outline, pixels
# Stretched to a square of this many pixels, characters are compared: above
# this correlation in some face, two are one. Latin A, Greek Alpha and Cyrillic
# A are, and so are o and O, which differ in size and width alone.
SHAPE_SIZE = 16
SAME_SHAPE = 0.92
# Symbols keep a wider distance to letters, as they must not pass for one.
LIKE_A_LETTER = 0.85

LETTERS = ("Lu", "Ll", "Lo")
SYMBOLS = ("Sm", "So", "Sc", "Po", "Pd", "Ps", "Pe", "No", "Nd")


@lru_cache(maxsize=4)
def load(**settings: Any) -> RetrievalSplits:
    """Renders the `glyphs` data set; the same settings, the same pixels.

    A class is a letter. An image is that letter in one of the 12 faces of
    DejaVu, rotated, scaled and shifted, in one cell of a canvas of 2 x 2; the
    other cells hold symbols. Training, validation and test images share
    neither letters nor symbols. `settings` are those of `_sides`, where
    `test_samples` are of a validation letter too.
    """
    sides: dict[str, Any] = {}
    for side, drawn in _sides(**settings).items():
        letters, _, samples, *_ = drawn
        images, _ = _images_and_cells(*drawn)
        sides[side] = ImageSet(
            labels=np.repeat(np.arange(len(letters)), samples),
            class_names=tuple(f"{c} {unicodedata.name(c)}" for c in letters),
            images=np.repeat(images[..., None], 3, axis=-1),
        )
    return RetrievalSplits(name="glyphs", **sides)


def letter_cells(side: str, **settings: Any) -> np.ndarray:
    """Returns the cell of each image's letter, by row from the upper left."""
    return _images_and_cells(*_sides(**settings)[side])[1]


def single_characters(*, samples: int = 60, seed: int = 0) -> ImageSet:
    """Renders clean characters to pretrain on, each alone in its cell.

    The classes are the training letters and symbols that `load` draws.
    """
    letters, symbols, *_ = _sides()["train"]
    outlines = np.stack([*letters.values(), *symbols])
    labels = np.repeat(np.arange(len(outlines)), samples)
    generator = np.random.default_rng(seed)
    face = generator.integers(outlines.shape[1], size=len(labels))
    images = np.empty((len(labels), CELL, CELL), "uint8")
    for start in range(0, len(labels), BLOCK):
        block = slice(start, start + BLOCK)
        drawn = outlines[labels[block], face[block]]
        images[block] = 255 - _jittered(drawn, generator)
    return ImageSet(
        labels=labels,
        class_names=tuple(map(str, range(len(outlines)))),
        images=np.repeat(images[..., None], 3, axis=-1),
    )


def _sides(
    *,
    train_classes=150,
    train_samples=60,
    validation_classes=60,
    test_classes=100,
    test_samples=20,
    distractors=True,
    canvas_size=2 * CELL,
    seed=0,
):
    """Returns the arguments of `_images_and_cells` for every side."""
    if canvas_size < 1 or canvas_size % CELL:
        raise ValueError(
            f"`canvas_size` must be a multiple of {CELL} with glyphs. "
            f"Received: canvas_size={canvas_size}."
        )
    counts = train_classes, validation_classes, test_classes
    letters, symbols = distinct_outlines()
    if sum(counts) > len(letters):
        raise ValueError(
            "`train_classes + validation_classes + test_classes` must be at "
            f"most {len(letters)}. Received: {' + '.join(map(str, counts))}."
        )
    generator = np.random.default_rng(seed)
    # Every side gets the share of symbols that it has of the letters.
    shares = [len(symbols) * count // sum(counts) for count in counts]
    drawn = (
        np.split(generator.permutation(list(one)), np.cumsum(sizes))[:3]
        for one, sizes in ((letters, counts), (symbols, shares))
    )
    names = "train", "validation", "test"
    sides = zip(names, *drawn, generator.spawn(3), strict=True)
    return {
        side: (
            {c: letters[c] for c in of_letters},
            [symbols[c] for c in of_symbols if distractors],
            train_samples if side == "train" else test_samples,
            canvas_size // CELL,
            child,
            side,
        )
        for side, of_letters, of_symbols, child in sides
    }


def _images_and_cells(letters, symbols, samples, across, generator, side):
    """Returns canvases and the cell of each canvas's letter."""
    labels = np.repeat(np.arange(len(letters)), samples)
    outlines = np.stack(list(letters.values()))
    images = np.empty((len(labels), across * CELL, across * CELL), "uint8")
    cells = np.empty(len(labels), "int64")
    blocks = range(0, len(labels), BLOCK)
    for start in tqdm(blocks, desc=f"glyphs, {side}", leave=False):
        block = slice(start, start + BLOCK)
        drawn = outlines[labels[block], None]
        if symbols and across > 1:
            others = _some_of(symbols, len(drawn), across**2 - 1, generator)
            drawn = np.hstack([drawn, others])
        images[block], cells[block] = _canvases(drawn, across, generator)
    return images, cells


def _some_of(symbols, num_images, number, generator):
    """Different symbols for each image, (num_images, number, ...)."""
    order = generator.random((num_images, len(symbols)))
    return np.stack(symbols)[np.argpartition(order, number)[:, :number]]


def _canvases(drawn, across, generator):
    """Draws characters (num_images, number, faces, ...) in cells of their own.

    Returns canvases, and the cell of each image's first character.
    """
    count, characters, faces = drawn.shape[:3]
    face = generator.integers(faces, size=(count, characters))
    rows = np.arange(count)[:, None]
    outlines = drawn[rows, np.arange(characters), face]
    every = np.tile(np.arange(across**2), (count, 1))
    cells = generator.permuted(every, axis=1)
    canvas = np.zeros((count, across**2, CELL, CELL), "uint8")
    ink = _jittered(outlines.reshape(-1, *outlines.shape[2:]), generator)
    canvas[rows, cells[:, :characters]] = ink.reshape(
        count, characters, CELL, CELL
    )
    canvas = canvas.reshape(count, across, across, CELL, CELL)
    canvas = canvas.transpose(0, 1, 3, 2, 4)
    side = across * CELL
    return 255 - canvas.reshape(count, side, side), cells[:, 0]


def _jittered(outlines, generator):
    """Scales, rotates and shifts each outline inside a cell."""
    count = len(outlines)
    extent = generator.uniform(*EXTENT, size=(count, 1, 1))
    angle = np.deg2rad(generator.uniform(-ROTATION, ROTATION, (count, 1, 1)))
    center = generator.uniform(-1, 1, (2, count, 1, 1)) * (CELL - extent) / 2
    # Where in the outline, counted from its center, each pixel comes from.
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
    """Samples each image (n, size, size) at (n, h, w), padded with 0."""
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


@lru_cache(maxsize=1)
def distinct_outlines() -> tuple[dict, dict]:
    """Draws all letters and symbols that can be told apart.

    They are in all 12 DejaVu faces, have no accents, and do not look like one
    taken before. Returns letters and symbols, each a dict from character to
    outlines (num_faces, OUTLINE_SIZE, OUTLINE_SIZE), uint8, 255 is ink.
    """
    from PIL import ImageFont
    from PIL.Image import Resampling

    files, square = _font_files(), (SHAPE_SIZE, SHAPE_SIZE)
    fonts = [ImageFont.truetype(str(file), 48) for file in files]
    common = _common_characters(files)
    characters = [*common[LETTERS], *common[SYMBOLS]]
    outlines, shapes = {}, {}
    for character in tqdm(characters, desc="outlines", leave=False):
        ink = [_ink(font, character) for font in fonts]
        if all(one is not None for one in ink):
            outlines[character] = np.stack([_outline(one) for one in ink])
            # Stretched to a square, to be compared with others.
            stretched = [one.resize(square, Resampling.BOX) for one in ink]
            shapes[character] = np.stack([np.asarray(one) for one in stretched])
    kept = _without_look_alikes(shapes, set(common[LETTERS]))
    letters, symbols = (
        {c: outlines[c] for c in common[kind] if c in kept}
        for kind in (LETTERS, SYMBOLS)
    )
    return letters, symbols


def _font_files():
    import matplotlib

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    # The two Display faces hold a few mathematical signs only.
    files = [f for f in folder.glob("DejaVu*.ttf") if "Display" not in f.name]
    if len(files) != 12:
        raise FileNotFoundError(
            "The 12 DejaVu text faces of matplotlib must be in its font "
            f"folder. Received: {len(files)} in {folder}."
        )
    return sorted(files)


def _common_characters(files):
    from fontTools.ttLib import TTFont

    tables = [TTFont(file, lazy=True).getBestCmap().keys() for file in files]
    common = [chr(code) for code in sorted(set.intersection(*map(set, tables)))]
    simple = [c for c in common if not unicodedata.decomposition(c)]
    return {
        kind: [c for c in simple if unicodedata.category(c) in kind]
        for kind in (LETTERS, SYMBOLS)
    }


def _ink(font, character):
    """Returns the cut-out ink of one character, or None."""
    from PIL import Image

    mask = font.getmask(character, mode="L")
    is_empty = not all(mask.size)
    return None if is_empty else Image.frombytes("L", mask.size, bytes(mask))


def _outline(ink):
    """The ink with its longer side scaled to OUTLINE_SIZE."""
    from PIL import Image

    factor = OUTLINE_SIZE / max(ink.size)
    width, height = (max(1, round(side * factor)) for side in ink.size)
    ink = ink.resize((width, height), Image.Resampling.LANCZOS)
    square = Image.new("L", (OUTLINE_SIZE, OUTLINE_SIZE))
    left, top = (OUTLINE_SIZE - width) // 2, (OUTLINE_SIZE - height) // 2
    square.paste(ink, (left, top))
    return np.asarray(square)


def _without_look_alikes(shapes, letters):
    """Keeps characters that look like none kept before them."""
    # Largest correlation of two shapes in any face, (count, count).
    pixels = np.stack([*shapes.values()]).astype("float32")
    pixels = pixels.reshape(*pixels.shape[:2], -1)
    pixels -= pixels.mean(axis=-1, keepdims=True)
    pixels /= np.linalg.norm(pixels, axis=-1, keepdims=True) + 1e-6
    likeness = np.full((len(shapes), len(shapes)), -1.0, "float32")
    for face in pixels.transpose(1, 0, 2):
        np.maximum(likeness, face @ face.T, out=likeness)
    is_letter = np.array([c in letters for c in shapes])
    kept = np.zeros(len(shapes), bool)
    for index in range(len(shapes)):
        like_kept = np.where(kept, likeness[index], -1.0)
        like_letter = like_kept[is_letter].max(initial=-1.0)
        kept[index] = like_kept.max() < SAME_SHAPE and (
            is_letter[index] or like_letter < LIKE_A_LETTER
        )
    return {c for c, is_kept in zip(shapes, kept, strict=True) if is_kept}
