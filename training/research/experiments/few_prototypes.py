"""GSP with few prototypes: data and short trainings.

`zero_shot_prediction` and `dominant_prototypes` examine these models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

import keras_gsp as gsp
from keras_gsp.data import ImageSet
from training.datasets import glyphs
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

CIFAR_WEIGHT = 0.5
"""Weight of the zero-shot regularizer on CIFAR (GSP, supplement)."""
_SIDE = 32
"""Side of a picture of an image folder, in pixels."""
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
    """An image folder, of which unseen images of the training classes are
    examined: `test/CLASS` where it has both sides, else half of each class. By
    default unseen classes of `glyphs` are."""
    num_prototypes: int = 8
    inverse_temperature: float = 10.0
    transport_ratio: float = 0.2
    regularizer_weight: float | None = None
    """Share of the zero-shot regularizer in the loss, in [0, 1]; None: 0.5 on
    folders as in the papers, 0.1 on `glyphs`."""
    steps: int = 600
    batch_size: int = 64
    loss: Literal["proxy-nca", "c2"] = "proxy-nca"
    """Loss of the training."""
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
    if settings.data_dir is None:
        data = glyphs.load(**_sizes(settings))
        return data.train, data.test
    sides = load_sides(settings.data_dir, _SIDE)
    if sides is None:
        images = load_pictures(settings.data_dir, _SIDE)
        rows = halves_of_classes(images.labels)
        sides = images.subset(rows[0]), images.subset(rows[1])
    return sides


def examined_subject_cells(settings: FewPrototypesSettings) -> Any:
    """The cell of its canvas in which each examined image shows its class.

    Returns:
        (num_images,), in [0, 4): upper left, upper right, lower left, lower
        right, in the order of `known_and_examined`; None where a picture
        fills the whole image.
    """
    if settings.data_dir is not None:
        return None
    return glyphs.letter_cells("test", **_sizes(settings))


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
            weight = REGULARIZER_WEIGHTS["zsr"] if on_glyphs else CIFAR_WEIGHT
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
