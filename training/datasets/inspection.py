"""Finds copies, leaks and unusable images in a data set.

Two images are near duplicates when small copies of them, 32 x 32 pixels,
differ by at most `MAX_DIFFERENCE` of their own standard deviation: other
compressions and sizes of one picture. Mirrored, cropped and recolored
copies are not found.
"""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import keras_gsp as gsp
from keras_gsp.data import ImageSet
from keras_gsp.retrieval.duplicates import connected
from training.datasets.image_set import RetrievalSplits

MAX_DIFFERENCE = 0.1
SMALL = gsp.data.Preprocessing(32)
# Of red, green and blue in gray.
GRAY = np.array([0.299, 0.587, 0.114], "float32")
# Images that are nearest by 8 x 8 gray pixels are looked at closely, up to a
# correlation of 0.98.
NEAREST, MAX_DISTANCE = 20, 0.2
# Standard deviation of gray values below which an image shows nothing.
BLANK = 2.0
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
    """Findings of `inspect` by image names.

    `copies` maps where they are to groups of copies of one picture, identical
    or nearly so, the largest file of a group first.
    """

    unreadable: dict[str, str] = field(default_factory=dict)
    tiny: list[str] = field(default_factory=list)
    blank: list[str] = field(default_factory=list)
    copies: dict[str, list[list[str]]] = field(default_factory=dict)

    @property
    def has_leak(self) -> bool:
        """Whether an image, or nearly the same one, is in two splits."""
        return LEAK in self.copies


def inspect(
    splits: RetrievalSplits | ImageSet,
    root: Path,
    progress: Any = lambda rows, total: rows,
) -> Inspection:
    """Looks at every file of a data set and compares all of them.

    An `ImageSet` is a collection that is not split. Files are named below
    `root`. `progress` maps an iterable to one that shows progress.
    """
    found = Inspection()
    paths: list[str] = []
    origins = []
    for side, images in scored_sides(splits).items():
        paths += images.paths
        origins += [(side, name) for name in images.names]
    with ThreadPoolExecutor() as threads:
        looks = list(progress(threads.map(_look, paths), total=len(paths)))
    names = [os.path.relpath(path, root) for path in paths]
    for look, name in zip(looks, names, strict=True):
        if look.problem is not None:
            found.unreadable[name] = look.problem
        else:
            found.tiny += [name] if min(look.size) < MIN_SIDE else []
            found.blank += [name] if look.small is None else []
    sides = np.array([side for side, _ in origins])
    pairs = [*_exact_pairs(looks), *_near_pairs(looks, sides)]
    group = connected(np.reshape(pairs, (-1, 2)).astype(int), len(looks))
    for first in np.unique(group[[one for one, _ in pairs]]):
        members = sorted(
            np.flatnonzero(group == first),
            key=lambda i: (-np.prod(looks[i].size), names[i]),
        )
        where = "in one class"
        if len({sides[i] for i in members}) > 1:
            where = LEAK
        elif len({origins[i] for i in members}) > 1:
            where = "in several classes of one split"
        copies = [names[i] for i in members]
        found.copies.setdefault(where, []).append(copies)
    return found


def scored_sides(splits: RetrievalSplits | ImageSet) -> dict[str, Any]:
    """The sides of a data set; queries and gallery are its test images."""
    if isinstance(splits, ImageSet):
        return {"images": splits}
    sides = {"train": splits.train, **splits.scored()}
    sides["validation"] = splits.validation
    return {side: part for side, part in sides.items() if part is not None}


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


def _near_pairs(looks, sides):
    """Pairs that look alike; of exact copies one is compared.

    An image is compared with the nearest of its side and of the others: many
    frames of one scene must not hide a leak.
    """
    seen = {k.digest: i for i, k in reversed([*enumerate(looks)])}
    rows = np.array(
        [i for i in sorted(seen.values()) if looks[i].coarse is not None], int
    )
    pairs = set()
    for side in {*sides[rows].tolist()}:
        is_own = sides[rows] == side
        queries = rows[is_own]
        for gallery, others in ((queries, 1), (rows[~is_own], 0)):
            count = min(NEAREST, len(gallery) - others)
            if count < 1:
                continue
            coarse = [
                np.stack([looks[i].coarse for i in part])
                for part in (gallery, queries)
            ]
            near = gsp.retrieval.ExactIndex(coarse[0], ids=gallery).search(
                coarse[1], count, exclude_ids=queries
            )
            first, rank = np.nonzero(near.distances <= MAX_DISTANCE)
            found = np.stack([queries[first], near.ids[first, rank]], 1)
            pairs |= {tuple(pair) for pair in np.sort(found, 1).tolist()}
    return [
        pair
        for pair in sorted(pairs)
        if _is_alike(*(looks[i].small for i in pair))
    ]


def _is_alike(one, other):
    one, other = one.astype("float32"), other.astype("float32")
    contrast = min(one.std(), other.std())
    difference = np.sqrt(np.mean(np.square(one - other)))
    return difference <= MAX_DIFFERENCE * contrast
