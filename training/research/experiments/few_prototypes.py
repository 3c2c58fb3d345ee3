"""GSP with few prototypes: data and short trainings.

`zero_shot_prediction` and `dominant_prototypes` examine these models.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from keras_gsp.data import ImageSet
from training.datasets import glyphs
from training.datasets.collage import load_pictures
from training.datasets.layout import images_root
from training.pictures.palette import BLUE, GREEN, VERMILION
from training.recipes.batches import training_batches
from training.recipes.learner import build_learner, start_from_data
from training.recipes.named import named
from training.research.report import ExperimentSettings

RIDGE = 0.05
"""Ridge of the losses' regressions, and of those fitted afterwards."""
CIFAR_WEIGHT = 0.5
"""Weight of the zero-shot regularizer on CIFAR (GSP, supplement)."""
_SIDE = 32
"""Side of a picture of an image folder, in pixels."""
COLORS = {"GSP": BLUE, "GSP+ZSR": VERMILION, "GSP+XML": GREEN}
UNTRAINED = "untrained"
# "GSP" has a regularizer of weight 0: the encoder then returns histograms.
REGULARIZERS: dict[str, dict[str, Any]] = {
    "GSP": {"regularizer": "zsr", "regularizer_weight": 0.0},
    "GSP+ZSR": {"regularizer": "zsr"},
    "GSP+XML": {"regularizer": "xml"},
}


@dataclass(frozen=True, kw_only=True)
class FewPrototypesSettings(ExperimentSettings):
    """Data and training."""

    data_dir: Path | None = None
    """An image folder, of which unseen images of the training classes are
    examined: `test/CLASS` where it has both sides, else half of each class. By
    default unseen classes of `glyphs` are."""
    num_prototypes: int = 8
    steps: int = 600
    batch_size: int = 64

    SMALL = {"seeds": (0,), "steps": 2, "batch_size": 8}


def train(
    settings: FewPrototypesSettings, method: str, images: ImageSet, seed: int
) -> tuple[Any, dict[str, float]]:
    """Trains one method of `REGULARIZERS`, or the encoder that all start from.

    Returns the encoder, and the regularizer's mean share of the gradient as
    `share`, nothing without one.
    """
    recipe = _recipe(settings, method, images, seed)
    learner = build_learner(
        recipe,
        num_classes=images.num_classes,
        image_shape=images.images.shape[1:],
    )
    batches = training_batches(recipe, images)
    start_from_data(recipe, learner, images)
    if method == UNTRAINED:
        return learner.encoder, {}
    history = learner.fit(
        batches,
        epochs=1,
        steps_per_epoch=recipe.steps,
        shuffle=False,
        verbose=0,
    ).history
    if "regularizer_share" not in history:
        return learner.encoder, {}
    return learner.encoder, {"share": history["regularizer_share"][0]}


def known_and_examined(
    settings: FewPrototypesSettings,
) -> tuple[ImageSet, ImageSet]:
    """Images for training, and those that are examined afterwards."""
    if settings.data_dir is None:
        data = glyphs.load(**_sizes(settings))
        return data.train, data.test
    root = images_root(settings.data_dir)
    if (root / "train").is_dir() and (root / "test").is_dir():
        train = load_pictures(root / "train", _SIDE)
        test = load_pictures(root / "test", _SIDE)
        if train.class_names == test.class_names:
            return train, test
    images = load_pictures(root, _SIDE)
    # Half the images of each class.
    order = np.random.default_rng(0).permutation(len(images))
    order = order[np.argsort(images.labels[order], kind="stable")]
    return images.subset(order[::2]), images.subset(order[1::2])


def examined_subject_cells(settings: FewPrototypesSettings) -> Any:
    """The cell of its canvas in which each examined image shows its class.

    (num_images,), counted row by row; None where a picture fills the image.
    """
    if settings.data_dir is not None:
        return None
    return glyphs.letter_cells("test", **_sizes(settings))


def short_names(images: ImageSet) -> list[str]:
    """The first word of each class's name."""
    return [name.split()[0].rstrip(":") for name in images.class_names]


def class_means(values: Any, labels: Any) -> Any:
    """Mean of the rows of each class, (num_classes, size)."""
    classes = range(labels.max() + 1)
    return np.stack([values[labels == one].mean(axis=0) for one in classes])


def encoded(encoder: Any, images: ImageSet) -> dict:
    """`"embedding"` and perhaps `"histogram"`, (num_images, size) each."""
    found = encoder.predict(images.images, batch_size=200, verbose=0)
    return found if isinstance(found, dict) else {"embedding": found}


def _recipe(settings, method, images, seed):
    own = {"regularizer_weight": None} | REGULARIZERS[
        method.replace(UNTRAINED, "GSP")
    ]
    if method == "GSP+ZSR" and settings.data_dir is not None:
        own["regularizer_weight"] = CIFAR_WEIGHT
    classes = int(np.clip(images.num_classes, 1, settings.batch_size // 4))
    return named("glyphs", pooling="gsp").with_(
        classes_per_batch=classes,
        samples_per_class=max(2, settings.batch_size // classes),
        num_prototypes=settings.num_prototypes,
        inverse_temperature=10.0,
        transport_ratio=0.2,
        steps=settings.steps,
        steps_per_evaluation=settings.steps,
        seed=seed,
        loss="proxy-nca",
        ridge=RIDGE,
        log_regularizer_share=own["regularizer_weight"] != 0.0,
        **own,
    )


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
