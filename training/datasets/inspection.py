"""Finds copies, leaks and unusable images in a data set.

Two images are near duplicates when small copies of them, 32 x 32 pixels,
differ by at most `MAX_DIFFERENCE` of their own standard deviation: other
compressions and sizes of one picture. Mirrored, cropped and recolored
copies are not found.
"""

import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import keras_gsp as gsp
from keras_gsp.data import ImageSet
from training.datasets.image_set import RetrievalSplits

MAX_DIFFERENCE = 0.1
SMALL = gsp.data.Preprocessing(32)
# Of red, green and blue in gray.
GRAY = np.array([0.299, 0.587, 0.114], "float32")
# Of 8 x 8 gray pixels, from which pairs are drawn to be looked at closely.
MIN_COARSE_CORRELATION = 0.98
# Standard deviation of gray values below which an image shows nothing.
BLANK = 2.0
BLOCK_ROWS = 1024
MAX_PAIRS = 100_000
MIN_SIDE = 32
"""Pixels; an image with a shorter side is too small."""
LEAK = "across the class split: LEAKAGE"


@dataclass(frozen=True)
class Look:
    """Facts about one file."""

    digest: str  # of its bytes
    problem: str | None = None  # why it cannot be used
    size: tuple[int, int] = (0, 0)  # width and height as shown, pixels
    small: np.ndarray | None = None  # a 32 x 32 copy; None: blank
    coarse: np.ndarray | None = None  # 8 x 8 gray, mean 0, length 1


@dataclass
class Inspection:
    """Findings of `inspect` by image names, below the folder of all images.

    `copies` maps "identical" or "nearly identical", and where, to pairs, at
    most `MAX_PAIRS` of near ones within the splits and as many across them;
    `sizes` has width and height of each image in a pair.
    """

    unreadable: dict[str, str] = field(default_factory=dict)
    tiny: list[str] = field(default_factory=list)
    blank: list[str] = field(default_factory=list)
    copies: dict[tuple[str, str], list[tuple[str, str]]] = field(
        default_factory=dict
    )
    are_all_listed: bool = True
    sizes: dict[str, tuple[int, int]] = field(
        default_factory=dict, compare=False
    )

    @property
    def groups(self) -> list[list[str]]:
        """Copies of one picture, joined over pairs, the largest file first."""
        groups: dict[str, list[str]] = {}
        for pairs in self.copies.values():
            for pair in pairs:
                one, other = (groups.setdefault(name, [name]) for name in pair)
                if one is not other:
                    one += other
                    groups |= dict.fromkeys(other, one)
        unique = {id(group): group for group in groups.values()}
        return [
            sorted(group, key=lambda name: (-np.prod(self.sizes[name]), name))
            for group in unique.values()
        ]

    @property
    def has_leak(self) -> bool:
        """Whether an image, or nearly the same one, is in two splits."""
        return any(where == LEAK for _, where in self.copies)


def inspect(
    splits: RetrievalSplits | ImageSet,
    progress: Any = lambda rows, total: rows,
) -> Inspection:
    """Looks at every file of a data set and compares all of them.

    An `ImageSet` is a collection that is not split. `progress` maps an
    iterable to one that shows progress.
    """
    found = Inspection()
    paths: list[str] = []
    origins = []
    for side, images in scored_sides(splits).items():
        paths += images.paths
        origins += [(side, name) for name in images.names]
    with ThreadPoolExecutor() as threads:
        looks = list(progress(threads.map(_look, paths), total=len(paths)))
    folder = os.path.commonpath([os.path.dirname(path) for path in paths])
    names = [os.path.relpath(path, folder) for path in paths]
    for look, name in zip(looks, names, strict=True):
        if look.problem is not None:
            found.unreadable[name] = look.problem
        else:
            found.tiny += [name] if min(look.size) < MIN_SIDE else []
            found.blank += [name] if look.small is None else []
    sides = np.array([side for side, _ in origins])
    budget = {False: MAX_PAIRS, True: MAX_PAIRS}
    for kind, pairs in (
        ("identical", _exact_pairs(looks)),
        ("nearly identical", _near_pairs(looks, sides, budget)),
    ):
        for one, other in pairs:
            where = "in one class"
            if sides[one] != sides[other]:
                where = LEAK
            elif origins[one] != origins[other]:
                where = "in two classes of one split"
            pair = names[one], names[other]
            found.copies.setdefault((kind, where), []).append(pair)
            for position, name in zip((one, other), pair, strict=True):
                found.sizes[name] = looks[position].size
    found.are_all_listed = all(budget.values())
    return found


def scored_sides(splits: RetrievalSplits | ImageSet) -> dict[str, Any]:
    """The sides of a data set; queries and gallery are its test images."""
    if isinstance(splits, ImageSet):
        return {"images": splits}
    sides = splits.sides()
    if splits.query is not None:
        del sides["test"]
    return sides


def _look(path):
    try:
        contents = Path(path).read_bytes()
    except OSError as error:
        return Look("", f"cannot be read ({error.strerror})")
    digest = hashlib.sha256(contents).hexdigest()
    try:
        height, width = gsp.data.image_size(contents)
        small = SMALL.decode(contents)
    except ValueError as error:
        return Look(digest, f"cannot be read ({error})")
    shown_size = width, height
    gray = small.astype("float32") @ GRAY
    if gray.std() < BLANK:
        return Look(digest, None, shown_size)
    coarse = gray.reshape(8, 4, 8, 4).mean(axis=(1, 3)).reshape(-1)
    coarse -= coarse.mean()
    coarse /= max(float(np.linalg.norm(coarse)), 1e-6)
    return Look(digest, None, shown_size, small.reshape(-1), coarse)


def _exact_pairs(looks):
    """Yields the first image of each content with each of its copies."""
    first: dict[str, int] = {}
    for position, look in enumerate(looks):
        if look.digest and first.setdefault(look.digest, position) != position:
            yield first[look.digest], position


def _near_pairs(looks, sides, budget) -> Iterator[tuple[int, int]]:
    """Yields pairs that look alike; of exact copies one is compared.

    Many frames of one scene must not hide a leak: pairs within a side and
    pairs across sides have a budget each, which is counted down.
    """
    seen = {k.digest: i for i, k in reversed([*enumerate(looks)])}
    positions = np.array(
        [i for i in sorted(seen.values()) if looks[i].coarse is not None], int
    )
    if not len(positions):
        return
    coarse = np.stack([looks[position].coarse for position in positions])
    for start in range(0, len(positions), BLOCK_ROWS):
        products = coarse[start : start + BLOCK_ROWS] @ coarse[start:].T
        rows, columns = np.nonzero(products >= MIN_COARSE_CORRELATION)
        is_later = columns > rows
        first, second = positions[start:][rows], positions[start:][columns]
        is_across = sides[first] != sides[second]
        for across in (True, False):
            some = is_later & (is_across == across)
            for pair in zip(first[some], second[some], strict=True):
                if not budget[across]:
                    break
                if _is_alike(*(looks[position].small for position in pair)):
                    budget[across] -= 1
                    yield pair


def _is_alike(one, other):
    one, other = one.astype("float32"), other.astype("float32")
    contrast = min(one.std(), other.std())
    difference = np.sqrt(np.mean(np.square(one - other)))
    return difference <= MAX_DIFFERENCE * contrast
