"""Letters and symbols of the DejaVu fonts, one outline to each."""

import unicodedata
from functools import lru_cache
from pathlib import Path

import numpy as np
from tqdm import tqdm

OUTLINE_SIZE = 24
"""Longer side of an outline, pixels."""

# Stretched to a square of this many pixels, characters are compared: above
# this correlation in some face, two are one. Latin A, Greek Alpha and Cyrillic
# A are, and so are o and O, which differ in size and width alone.
SHAPE_SIZE = 16
SAME_SHAPE = 0.92
# Symbols keep a wider distance to letters, as they must not pass for one.
LIKE_A_LETTER = 0.85

LETTERS = ("Lu", "Ll", "Lo")
SYMBOLS = ("Sm", "So", "Sc", "Po", "Pd", "Ps", "Pe", "No", "Nd")


@lru_cache(maxsize=1)
def distinct_outlines() -> tuple[dict, dict]:
    """Outlines of all letters and symbols that can be told apart.

    A character is taken when it is in all 12 DejaVu text faces that
    matplotlib ships, is not composed of others (no accents), and does not
    look like one taken before it; a symbol that looks like a letter goes.

    Returns:
        Letters and symbols, each a dict from character to its outlines
        (num_faces, OUTLINE_SIZE, OUTLINE_SIZE), uint8, 255 is ink.
    """
    from PIL import ImageFont

    files = _font_files()
    fonts = [ImageFont.truetype(str(file), 48) for file in files]
    common = _common_characters(files)
    characters = [c for kind in (LETTERS, SYMBOLS) for c in common[kind]]
    outlines, shapes = {}, {}
    for character in tqdm(characters, desc="outlines", leave=False):
        ink = [_ink(font, character) for font in fonts]
        if all(one is not None for one in ink):
            outlines[character] = np.stack([_outline(one) for one in ink])
            shapes[character] = np.stack([_shape(one) for one in ink])
    kept = _without_look_alikes(shapes, set(common[LETTERS]))
    return tuple(
        {c: outlines[c] for c in common[kind] if c in kept}
        for kind in (LETTERS, SYMBOLS)
    )


def _font_files():
    import matplotlib

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    # The two Display faces hold a few mathematical signs only.
    files = [f for f in folder.glob("DejaVu*.ttf") if "Display" not in f.name]
    if len(files) != 12:
        raise FileNotFoundError(
            "The 12 DejaVu text faces of matplotlib must be in its font "
            f"folder. Received: {len(files)} in {folder}. Reinstall it with "
            "`pip install --force-reinstall matplotlib`."
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
    """The cut-out ink of one character, or None where there is none."""
    from PIL import Image

    mask = font.getmask(character, mode="L")
    if not all(mask.size):
        return None
    return Image.frombytes("L", mask.size, bytes(mask))


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


def _shape(ink):
    """The ink stretched to a square, to be compared with others."""
    from PIL import Image

    square = (SHAPE_SIZE, SHAPE_SIZE)
    return np.asarray(ink.resize(square, Image.Resampling.BOX))


def _without_look_alikes(shapes, letters):
    """The characters that look like none that was kept before them."""
    characters = list(shapes)
    likeness = _likeness(np.stack(list(shapes.values())))
    is_letter = np.array([c in letters for c in characters])
    kept = np.zeros(len(characters), bool)
    for index in range(len(characters)):
        like_kept = np.where(kept, likeness[index], -1.0)
        like_letter = like_kept[is_letter].max(initial=-1.0)
        kept[index] = like_kept.max() < SAME_SHAPE and (
            is_letter[index] or like_letter < LIKE_A_LETTER
        )
    return {c for c, is_kept in zip(characters, kept, strict=True) if is_kept}


def _likeness(shapes):
    """(count, count): largest correlation of two shapes in any face."""
    pixels = shapes.reshape(*shapes.shape[:2], -1).astype("float32")
    pixels -= pixels.mean(axis=-1, keepdims=True)
    pixels /= np.linalg.norm(pixels, axis=-1, keepdims=True) + 1e-6
    likeness = np.full((len(shapes), len(shapes)), -1.0, "float32")
    for face in pixels.transpose(1, 0, 2):
        np.maximum(likeness, face @ face.T, out=likeness)
    return likeness
