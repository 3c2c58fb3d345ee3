"""Finds copies, leaks and unusable images in a data set.

Two images are near duplicates when small copies of them, 32 x 32 pixels,
differ by at most `MAX_DIFFERENCE` of their own standard deviation: other
compressions and sizes of one picture. Mirrored, cropped and recolored
copies are not found.
"""

import hashlib
import io
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from keras_gsp.data.decoding import MAX_PIXELS
from training.datasets.image_set import RetrievalSplits

# Queries and gallery are parts of the test images.
SPLITS = "train", "validation", "query", "gallery", "test"
MAX_DIFFERENCE = 0.1
# Of 8 x 8 gray pixels, from which pairs are drawn to be looked at closely.
MIN_COARSE_CORRELATION = 0.98
# Standard deviation of gray values below which an image shows nothing.
BLANK = 2.0
BLOCK_ROWS = 1024
MAX_PAIRS = 100_000

Pair = tuple[str, str]


@dataclass(frozen=True)
class Look:
    """Facts about one image.

    `digest` is that of the file's bytes, or of the pixels in memory; `problem`
    is the reason that it cannot be used; `side` is the shorter one in pixels;
    `small` has the pixels of a 32 x 32 copy, None of a blank image; `coarse`
    has 8 x 8 gray values with mean 0 and length 1.
    """

    digest: str
    problem: str | None = None
    side: int = 0
    small: np.ndarray | None = None
    coarse: np.ndarray | None = None
    is_blank: bool = False


@dataclass
class Inspection:
    """Findings of `inspect`: lists of image names, or of pairs of names."""

    splits: dict[str, dict[str, Any]] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    tiny: list[str] = field(default_factory=list)
    blank: list[str] = field(default_factory=list)
    exact_leaks: list[Pair] = field(default_factory=list)
    near_leaks: list[Pair] = field(default_factory=list)
    exact_in_two_classes: list[Pair] = field(default_factory=list)
    near_in_two_classes: list[Pair] = field(default_factory=list)
    exact_in_a_class: list[Pair] = field(default_factory=list)
    near_in_a_class: list[Pair] = field(default_factory=list)

    @property
    def has_leak(self) -> bool:
        """Whether an image, or nearly the same one, is in two splits."""
        return bool(self.exact_leaks or self.near_leaks)


def inspect(
    splits: RetrievalSplits,
    *,
    min_side: int = 32,
    max_pixels: int = MAX_PIXELS,
    progress: Any = iter,
) -> Inspection:
    """Looks at every image of a data set and compares all of them.

    A file of more than `max_pixels` is not decoded. `progress` maps an
    iterable to one that shows progress.
    """
    found = Inspection()
    names: list[str] = []
    looks, origins = [], []
    for split in SPLITS:
        images = getattr(splits, split)
        if images is None or (split == "test" and splits.query is not None):
            continue
        found.splits[split] = _class_facts(images)
        looks += _looks(images, max_pixels, progress)
        names += images.paths or [
            f"{split} image {i}" for i in range(len(images))
        ]
        origins += [(split, name) for name in images.names]
    if len(names) > 1 and all(map(os.path.isabs, names)):
        folder = os.path.commonpath(names)
        names = [os.path.relpath(name, folder) for name in names]
    for look, name in zip(looks, names, strict=True):
        if look.problem is not None:
            found.unreadable[name] = look.problem
            continue
        found.tiny += [name] if look.side < min_side else []
        found.blank += [name] if look.is_blank else []
    pairs = {"exact": _exact_pairs(looks), "near": _near_pairs(looks)}
    for kind, alike in pairs.items():
        for one, other in alike:
            place = "in_a_class"
            if origins[one][0] != origins[other][0]:
                place = "leaks"
            elif origins[one] != origins[other]:
                place = "in_two_classes"
            listed = getattr(found, f"{kind}_{place}")
            listed.append((names[one], names[other]))
    return found


def _class_facts(images):
    sizes = images.class_sizes
    singles = np.flatnonzero(sizes == 1)
    return {
        "num_images": len(images),
        "num_classes": images.num_classes,
        "smallest": int(sizes.min()),
        "median": float(np.median(sizes)),
        "largest": int(sizes.max()),
        "classes_with_one_image": [images.class_names[i] for i in singles],
    }


def _looks(images, max_pixels, progress):
    if images.paths is None:
        return [_look_at_array(image) for image in progress(images.images)]
    with ThreadPoolExecutor() as threads:
        look = partial(look_at_file, max_pixels=max_pixels)
        return list(progress(threads.map(look, images.paths)))


def look_at_file(path: str, max_pixels: int = MAX_PIXELS) -> Look:
    """Reads one file."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        contents = Path(path).read_bytes()
    except OSError as error:
        return Look("", f"cannot be read ({error.strerror})")
    digest = hashlib.sha256(contents).hexdigest()
    try:
        with Image.open(io.BytesIO(contents)) as image:
            width, height = image.size
            if width * height > max_pixels:
                return Look(digest, f"{width} x {height} pixels are too many")
            # Of a JPEG an eighth of the size is decoded, which is faster.
            image.draft("RGB", (64, 64))
            shown = ImageOps.exif_transpose(image).convert("RGB")
    except UnidentifiedImageError:
        return Look(digest, "is no image")
    # Pillow's decoders raise errors of many kinds on damaged files.
    except Exception as error:  # noqa: BLE001
        return Look(digest, f"cannot be decoded ({str(error)[:90]})")
    return _look(digest, shown, min(width, height))


def _look_at_array(pixels):
    from PIL import Image

    digest = hashlib.sha256(pixels.tobytes()).hexdigest()
    side = min(pixels.shape[:2])
    if pixels.dtype != "uint8" or pixels.shape[2] != 3:
        return Look(digest, side=side)
    return _look(digest, Image.fromarray(pixels), side)


def _look(digest, image, side):
    from PIL import Image

    small = image.resize((32, 32), Image.Resampling.BOX)
    gray = np.asarray(small.convert("L"), "float32")
    if gray.std() < BLANK:
        return Look(digest, None, side, is_blank=True)
    coarse = gray.reshape(8, 4, 8, 4).mean(axis=(1, 3)).reshape(-1)
    coarse -= coarse.mean()
    coarse /= max(float(np.linalg.norm(coarse)), 1e-6)
    return Look(digest, None, side, np.asarray(small).reshape(-1), coarse)


def _exact_pairs(looks):
    """Yields the first image of each content with each of its copies."""
    first: dict[str, int] = {}
    for place, look in enumerate(looks):
        if look.digest and first.setdefault(look.digest, place) != place:
            yield first[look.digest], place


def _near_pairs(looks) -> Iterator[tuple[int, int]]:
    """Yields pairs that look alike; of exact copies one is compared."""
    distinct: dict[str, int] = {}
    for place, look in enumerate(looks):
        if look.small is not None:
            distinct.setdefault(look.digest, place)
    places = [*distinct.values()]
    if not places:
        return
    coarse = np.stack([looks[place].coarse for place in places])
    num_pairs = 0
    for start in range(0, len(places), BLOCK_ROWS):
        products = coarse[start : start + BLOCK_ROWS] @ coarse[start:].T
        rows, columns = np.nonzero(products >= MIN_COARSE_CORRELATION)
        is_later = columns > rows
        for row, column in zip(rows[is_later], columns[is_later], strict=True):
            one, other = places[start + row], places[start + column]
            if _is_alike(looks[one].small, looks[other].small):
                yield one, other
                num_pairs += 1
                if num_pairs == MAX_PAIRS:
                    return


def _is_alike(one, other):
    one, other = one.astype("float32"), other.astype("float32")
    contrast = min(one.std(), other.std())
    difference = np.sqrt(np.mean(np.square(one - other)))
    return difference <= MAX_DIFFERENCE * contrast
