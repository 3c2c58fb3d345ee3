"""GSP with few prototypes on collages: data and short trainings.

`zero_shot_prediction` and `dominant_prototypes` examine these models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

import keras_gsp as gsp
from keras_gsp.data import ImageSet
from training.datasets.collage import load_pictures, load_sides
from training.pictures.palette import METHODS
from training.recipes.batches import training_batches
from training.recipes.learner import (
    REGULARIZER_WEIGHTS,
    build_learner,
    start_from_data,
)
from training.recipes.named import named
from training.recipes.recipe import Recipe
from training.research.report import (
    ExperimentSettings,
    mean_and_deviation,
    spread,
)
from training.research.studies import changed

COLLAGE_WEIGHT = 0.5
"""Weight of the zero-shot regularizer on CIFAR collages (GSP, supplement)."""
_SIDE = 32
"""Side of a single picture, and of one cell of a collage, in pixels."""
_BLOCK = 200
COLORS = {**METHODS, "GSP+XML": METHODS["XML"]}
# "GSP" has a regularizer of weight 0: the encoder then returns histograms.
REGULARIZERS: dict[str, dict[str, Any]] = {
    "GSP": {"regularizer": "zsr", "regularizer_weight": 0.0},
    "GSP+ZSR": {"regularizer": "zsr"},
    "GSP+XML": {"regularizer": "xml"},
}
NOTES = ("regularizer's weight", "its share of the gradient")


@dataclass(frozen=True, kw_only=True)
class FewPrototypesSettings(ExperimentSettings):
    """Data and training."""

    data_dir: Path | None = None
    """CIFAR-100 or an image folder for collages; `glyphs` by default."""
    num_prototypes: int = 8
    inverse_temperature: float = 10.0
    transport_ratio: float = 0.2
    regularizer_weight: float | None = None
    """Share of the zero-shot regularizer in the loss, in [0, 1]; None: 0.5 on
    collages as in the papers, 0.1 on `glyphs`."""
    steps: int = 600
    batch_size: int = 64
    loss: Literal["proxy-nca", "c2"] = "proxy-nca"
    """Loss of the training."""
    classes: Literal["unseen", "seen"] = "unseen"
    """Examine unseen classes, or unseen images of the training classes: then
    half of the images of every class are kept from training."""
    distilled: bool = False
    """Without distractors. `--classes seen` then takes all classes of an image
    folder, with its `train/CLASS` and `test/CLASS` where it has both."""
    ridge: float = 0.05
    """Ridge of the losses' regressions, and of those fitted afterwards."""

    def small(self) -> "FewPrototypesSettings":
        """A handful of steps."""
        return replace(self, seeds=(0,), steps=2, batch_size=8)


def train(
    settings: FewPrototypesSettings, method: str, images: ImageSet, seed: int
) -> tuple[Any, dict[str, Any]]:
    """Trains one method of `REGULARIZERS` for a fixed number of steps.

    Returns:
        The encoder, which returns embeddings and histograms, and the weight
        and mean gradient share of the regularizer, empty without one.
    """
    recipe = _recipe(settings, method, images, seed)
    learner = _learner(recipe, images)
    history = learner.fit(
        training_batches(recipe, images),
        epochs=1,
        steps_per_epoch=recipe.steps,
        shuffle=False,
        verbose=0,
    ).history
    if "regularizer_share" not in history:
        return learner.encoder, {}
    (share,) = history["regularizer_share"]
    note = {"weight": learner.regularizer_weight, "share": share}
    return learner.encoder, note


def untrained(
    settings: FewPrototypesSettings, images: ImageSet, seed: int
) -> Any:
    """The encoder that every method starts from."""
    return _learner(_recipe(settings, "GSP", images, seed), images).encoder


def noted(notes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Joins the notes of `train` over seeds; empty without a regularizer."""
    if not notes or not all(notes):
        return {}
    share = mean_and_deviation(note["share"] for note in notes)
    return {"regularizer": {"weight": notes[0]["weight"], "share": share}}


def note_cells(scores: Mapping[str, Any]) -> list[str]:
    """Cells under `NOTES` for scores with what `noted` returned."""
    note = scores.get("regularizer")
    if note is None:
        return ["-", "-"]
    return [f"{note['weight']:g}", spread(note["share"], digits=4)]


def known_and_examined(
    settings: FewPrototypesSettings,
) -> tuple[ImageSet, ImageSet]:
    """Images for training, and those that are examined afterwards."""
    is_seen = settings.classes == "seen"
    if is_seen and settings.distilled and settings.data_dir is not None:
        sides = load_sides(settings.data_dir, _SIDE)
        return sides or _halves(load_pictures(settings.data_dir, _SIDE))
    data = _splits(settings, distilled=settings.distilled)
    if not is_seen:
        return data.train, data.test
    images = np.concatenate([data.train.images, data.test.images])
    names = (*data.train.class_names, *data.test.class_names)
    return _halves(ImageSet(_joined_labels(data), names, images=images))


def examined_subject_cells(settings: FewPrototypesSettings) -> Any:
    """The cell of its canvas in which each examined image shows its class.

    Returns:
        (num_images,), in [0, 4): upper left, upper right, lower left, lower
        right, in the order of `known_and_examined`; None where a picture
        fills the whole image.
    """
    if settings.distilled and settings.data_dir is not None:
        return None
    if settings.classes == "unseen":
        return _subject_cells(settings, "test")
    data = _splits(settings, distilled=settings.distilled)
    cells = [_subject_cells(settings, side) for side in ("train", "test")]
    return np.concatenate(cells)[halves_of_classes(_joined_labels(data))[1]]


def cell_of_picture(collages: Any, pictures: Any) -> Any:
    """Finds each picture in its 2 x 2 canvas, pixel by pixel.

    Returns (num_images,), each in [0, 4): upper left, upper right, lower left,
    lower right.
    """
    count, height, width = pictures.shape[:3]
    cells = np.stack(
        [
            (collages[:, top : top + height, left : left + width] == pictures)
            .reshape(count, -1)
            .all(axis=1)
            for top in (0, height)
            for left in (0, width)
        ],
        axis=1,
    )
    if not cells.any(axis=1).all():
        first = int(np.flatnonzero(~cells.any(axis=1))[0])
        raise ValueError(
            "`pictures` must each be a cell of the collage beside it. "
            f"Received: a picture {first} that is none of its cells."
        )
    return cells.argmax(axis=1)


def halves_of_classes(labels: Any, seed: int = 0) -> tuple[Any, Any]:
    """Rows of half the images of every class, and of the others."""
    order = np.random.default_rng(seed).permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    is_known = np.arange(len(order)) % 2 == 0
    return order[is_known], order[~is_known]


def short_names(images: ImageSet) -> list[str]:
    """The first word of each class's name."""
    return [name.split()[0].rstrip(":") for name in images.class_names]


def class_means(values: Any, labels: Any) -> Any:
    """Mean of the rows of each class, (num_classes, size)."""
    counts = np.bincount(labels)[:, None]
    total = np.zeros((len(counts), values.shape[1]))
    np.add.at(total, labels, values)
    return total / counts


def encoded(encoder: Any, images: ImageSet) -> dict:
    """Embeddings and, where there are any, histograms of all images.

    Returns:
        `"embedding"` and perhaps `"histogram"`, (num_images, size) each.
    """
    parts = []
    for start in range(0, len(images), _BLOCK):
        block = images.images[start : start + _BLOCK]
        outputs = encoder(block, training=False)
        if not isinstance(outputs, dict):
            outputs = {"embedding": outputs}
        parts.append({key: np.asarray(v) for key, v in outputs.items()})
    return {
        key: np.concatenate([part[key] for part in parts]) for key in parts[0]
    }


def retrieval(encoder: Any, images: ImageSet) -> dict:
    """MAP@R and P@1 of an encoder on a set of images."""
    found = encoded(encoder, images)["embedding"]
    scores = gsp.metrics.retrieval_scores(found, images.labels)
    return {name: scores[name] for name in ("map_at_r", "precision_at_1")}


def balanced_batch(images: ImageSet, size: int) -> dict[str, Any]:
    """`classes_per_batch` and `samples_per_class` of a batch of this size."""
    classes = int(np.clip(images.num_classes, 1, size // 4))
    return {
        "classes_per_batch": classes,
        "samples_per_class": max(2, size // classes),
    }


def _recipe(settings, method, images, seed):
    own = REGULARIZERS[method]
    weight = own.get("regularizer_weight")
    if own["regularizer"] == "zsr" and weight is None:
        weight = settings.regularizer_weight
        if weight is None:
            on_glyphs = settings.data_dir is None
            weight = REGULARIZER_WEIGHTS["zsr"] if on_glyphs else COLLAGE_WEIGHT
    return changed(
        named("glyphs", pooling="gsp"),
        **balanced_batch(images, settings.batch_size),
        num_prototypes=settings.num_prototypes,
        inverse_temperature=settings.inverse_temperature,
        transport_ratio=settings.transport_ratio,
        steps=settings.steps,
        steps_per_evaluation=settings.steps,
        seed=seed,
        loss=settings.loss,
        ridge=settings.ridge,
        regularizer=own["regularizer"],
        regularizer_weight=weight,
        log_regularizer_share=weight != 0.0,
    )


def _learner(recipe: Recipe, images: ImageSet) -> Any:
    learner = build_learner(
        recipe,
        num_classes=images.num_classes,
        image_shape=images.images.shape[1:],
    )
    start_from_data(recipe, learner, training_batches(recipe, images))
    return learner


def _splits(settings, *, distilled):
    """Collages of an image folder, or `glyphs`."""
    if settings.data_dir is not None:
        from training.datasets.collage import collage_splits

        return collage_splits(settings.data_dir, distilled=distilled)
    from training.datasets import glyphs

    return glyphs.load(has_distractors=not distilled, **_sizes(settings))


def _subject_cells(settings, side):
    if settings.data_dir is None:
        from training.datasets import glyphs

        return glyphs.letter_cells(side, **_sizes(settings))
    pair = (_splits(settings, distilled=one) for one in (False, True))
    return cell_of_picture(*(getattr(splits, side).images for splits in pair))


def _sizes(settings) -> dict[str, Any]:
    """Sizes of `glyphs`, small ones for a smoke test."""
    if not settings.smoke:
        return {}
    return {
        "train_classes": 4,
        "train_samples": 8,
        "validation_classes": 4,
        "test_classes": 6,
        "test_samples": 4,
    }


def _halves(images):
    known, examined = map(images.subset, halves_of_classes(images.labels))
    return known, examined


def _joined_labels(data):
    sides = data.train, data.test
    return np.concatenate(
        [sides[0].labels, sides[1].labels + sides[0].num_classes]
    )
