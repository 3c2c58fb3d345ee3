"""GSP with few prototypes, alone and with each regularizer, trained alike."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from training.datasets.collage import load_pictures, load_sides
from training.datasets.image_set import ImageSet
from training.pictures.palette import METHODS
from training.recipes.glyphs import GSP
from training.research.experiments.distracted import (
    DistractedSettings,
    load_splits,
    short_recipe,
    subject_cells,
)
from training.research.experiments.short_training import (
    trained,
    untrained_encoder,
)

_SIDE = 32
"""Of a picture without distractors, pixels; of one cell of a collage."""
COLORS = {**METHODS, "GSP+XML": METHODS["XML"]}
# Without regularizer the histogram is still wanted: weight 0 leaves it out.
REGULARIZERS: dict[str, dict[str, Any]] = {
    "GSP": {"regularizer": "zsr", "regularizer_weight": 0.0},
    "GSP+ZSR": {"regularizer": "zsr"},
    "GSP+XML": {"regularizer": "xml"},
}


@dataclass(frozen=True, kw_only=True)
class FewPrototypesSettings(DistractedSettings):
    """Data and training."""

    num_prototypes: int = 8
    loss: Literal["proxy-nca", "c2"] = "proxy-nca"
    """What the network is trained with."""
    classes: Literal["unseen", "seen"] = "unseen"
    """Whether the classes that are looked at are those of training: half of
    the images of every class are then kept from it."""
    distilled: bool = False
    """Without what distracts. Seen classes of an image folder are then all of
    its classes; `train/CLASS` is known and `test/CLASS` looked at, where a
    folder has both, as CIFAR-10 has."""
    ridge: float = 0.05
    """Of the regressions of the losses, and of those fitted afterwards."""


def train(
    settings: FewPrototypesSettings, method: str, images: ImageSet, seed: int
) -> tuple[Any, dict[str, Any]]:
    """Trains one method of `REGULARIZERS`.

    Returns:
        The encoder, which gives embeddings and histograms, and what is noted
        of the regularizer's share.
    """
    return trained(_recipe(settings, method, images, seed), images)


def untrained(
    settings: FewPrototypesSettings, images: ImageSet, seed: int
) -> Any:
    """The encoder that every method starts from."""
    recipe = _recipe(settings, "GSP", images, seed)
    return untrained_encoder(recipe, images)


def known_and_examined(
    settings: FewPrototypesSettings,
) -> tuple[ImageSet, ImageSet]:
    """Images to learn from, and those that are looked at afterwards.

    Of unseen classes; or, with `classes="seen"`, the other half of the images
    of each class, those of training and those of the test.
    """
    if _is_whole_folder(settings):
        return _sides_of_folder(settings.data_dir)
    data = load_splits(settings, distilled=settings.distilled)
    if settings.classes == "unseen":
        return data.train, data.test
    sides = data.train, data.test
    labels = _joined_labels(sides)
    names = (*sides[0].class_names, *sides[1].class_names)
    images = np.concatenate([side.images for side in sides])
    return _halves(ImageSet(labels, names, images=images))


def examined_subject_cells(settings: FewPrototypesSettings) -> Any:
    """In which cell each image that is looked at shows its class.

    Returns:
        (num_images,), in [0, 4), in the order of `known_and_examined`; None
        where a picture of a folder fills the whole image.
    """
    if settings.distilled and settings.data_dir is not None:
        return None
    if settings.classes == "unseen":
        return subject_cells(settings, "test")
    data = load_splits(settings, distilled=settings.distilled)
    cells = [subject_cells(settings, side) for side in ("train", "test")]
    rows = halves_of_classes(_joined_labels((data.train, data.test)))[1]
    return np.concatenate(cells)[rows]


def halves_of_classes(labels: Any, seed: int = 0) -> tuple[Any, Any]:
    """Rows of half the images of every class, and of the others."""
    order = np.random.default_rng(seed).permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    is_known = np.arange(len(order)) % 2 == 0
    return order[is_known], order[~is_known]


def short_names(images: ImageSet) -> list[str]:
    """The first word of each class's name: room beside a picture is scarce."""
    return [name.split()[0].rstrip(":") for name in images.class_names]


def class_means(values: Any, labels: Any) -> Any:
    """Mean of the rows of each class, (num_classes, size)."""
    counts = np.bincount(labels)[:, None]
    total = np.zeros((len(counts), values.shape[1]))
    np.add.at(total, labels, values)
    return total / counts


def _recipe(settings, method, images, seed):
    return short_recipe(
        GSP,
        settings,
        images,
        seed,
        loss=settings.loss,
        ridge=settings.ridge,
        **REGULARIZERS[method],
    )


def _is_whole_folder(settings):
    return (
        settings.distilled
        and settings.classes == "seen"
        and settings.data_dir is not None
    )


def _sides_of_folder(data_dir):
    sides = load_sides(data_dir, _SIDE)
    return _halves(load_pictures(data_dir, _SIDE)) if sides is None else sides


def _halves(images):
    known, examined = map(images.subset, halves_of_classes(images.labels))
    return known, examined


def _joined_labels(sides):
    return np.concatenate(
        [sides[0].labels, sides[1].labels + sides[0].num_classes]
    )
