"""Collages: one picture that counts among three that distract."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import keras_gsp as gsp
from keras_gsp._labeled_batches import batches_of
from keras_gsp.data import ImageSet, image_folder
from training.datasets.image_set import RetrievalSplits
from training.datasets.own_images import merged_sides

# CIFAR-10: classes to learn from and similar ones to test, each with the class
# that fills the other cells.
CIFAR10_SIDES = (
    (("airplane", "automobile", "cat", "deer"), "bird"),
    (("ship", "truck", "dog", "horse"), "frog"),
)
_CELLS = 4
CELL = 32  # side of a cell, pixels


def collage_splits(
    data_dir: str | Path,
    *,
    images_per_class: int | None = None,
) -> RetrievalSplits:
    """Makes collages of the ten classes of CIFAR-10 (thesis, section 5.3.2).

    Four classes among birds, and similar ones among frogs in the test, of
    `train/` and `test/` where the folder has these. Validation has a fifth of
    the training images, since no class is left for it.
    """
    # A network may have learned the pictures of `train`.
    pictures = [
        load_pictures(data_dir, CELL, images_per_class, side=side)
        for side in ("train", "test")
    ]
    known = {name for own, one in CIFAR10_SIDES for name in (*own, one)}
    if {*pictures[0].class_names} != known:
        raise ValueError(
            "A collage needs the ten classes of CIFAR-10. Received: "
            f"{', '.join(pictures[0].class_names[:12])}."
        )
    rng, made = np.random.default_rng(0), {}
    for split, (own, background) in _cifar10_parts(*pictures).items():
        pixels = compose_collages(own.images, background, rng)
        made[split] = replace(own, images=pixels)
    return RetrievalSplits(name="collage", **made)


def compose_collages(pictures: Any, backgrounds: Any, seed: Any = 0) -> Any:
    """Places each picture in one cell of a 2 x 2 canvas among backgrounds.

    Backgrounds are dealt like cards: all are used before one is used again,
    and no canvas holds one twice. Pictures (num_images, height, width,
    channels) become (num_images, 2 height, 2 width, channels).
    """
    distractors, shape = _CELLS - 1, pictures.shape[1:]
    if len(backgrounds) < distractors or shape != backgrounds.shape[1:]:
        raise ValueError(
            f"`backgrounds` must be {distractors} or more images of the "
            f"pictures' shape {shape}. Received: shape {backgrounds.shape}."
        )
    rng = np.random.default_rng(seed)
    dealt = _dealt(len(backgrounds), len(pictures), distractors, rng)
    cells = np.concatenate([pictures[:, None], backgrounds[dealt]], axis=1)
    order = rng.permuted(np.tile(np.arange(_CELLS), (len(cells), 1)), axis=1)
    cells = np.take_along_axis(cells, order[:, :, None, None, None], axis=1)
    # Cells side by side, then rows one above the other.
    rows = [np.concatenate([cells[:, i], cells[:, i + 1]], 2) for i in (0, 2)]
    return np.concatenate(rows, axis=1)


def _dealt(size, rows, columns, rng):
    per_deck = size // columns
    decks = [
        rng.permutation(size)[: per_deck * columns].reshape(-1, columns)
        for _ in range(-(-rows // per_deck))
    ]
    return np.concatenate(decks)[:rows]


def _cifar10_parts(train_images, test_images):
    """Split -> (`ImageSet` to recognize, pixels of pictures that distract)."""
    (learned, background), test = (
        (_named(images, *own), _named(images, one).images)
        for images, (own, one) in zip(
            (train_images, test_images), CIFAR10_SIDES, strict=True
        )
    )
    held_out, others = (
        np.arange(len(side)) % 5 == 4 for side in (learned, background)
    )
    train = learned.subset(np.flatnonzero(~held_out)), background[~others]
    seen = learned.subset(np.flatnonzero(held_out))
    names = tuple(f"{name}, held out" for name in seen.class_names)
    validation = replace(seen, class_names=names), background[others]
    return {"train": train, "validation": validation, "test": test}


def _named(images, *names):
    return images.of_classes([images.class_names.index(n) for n in names])


def load_pictures(
    data_dir: str | Path,
    cell_size: int,
    images_per_class: int | None = None,
    side: str | None = None,
) -> ImageSet:
    """The images of a folder in memory, squares of `cell_size` pixels.

    `side` keeps `train/CLASS` or `test/CLASS`, where a folder has these.
    """
    images = image_folder(data_dir)
    sides = np.array([name.partition("/")[0] for name in images.names])
    images = merged_sides(images)
    if side is not None and {*sides} == {"train", "test"}:
        images = images.subset(np.flatnonzero(sides == side))
    # In the order of classes, which the drawn backgrounds depend on.
    kept = [
        np.flatnonzero(images.labels == label)[:images_per_class]
        for label in range(images.num_classes)
    ]
    images = images.subset(np.concatenate(kept))
    batches = gsp.data.image_batches(
        images.paths,
        preprocessing=gsp.data.Preprocessing(cell_size, cell_size),
        batch_size=256,
    )
    pixels = np.concatenate(list(batches_of(batches)))
    return replace(images, images=pixels, paths=None)
