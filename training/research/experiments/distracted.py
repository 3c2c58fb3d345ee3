"""Short trainings on images of which only a part shows the class."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from training.recipes.learner import REGULARIZER_WEIGHTS
from training.recipes.recipe import Recipe
from training.research.experiments.report import ExperimentSettings
from training.research.experiments.short_training import balanced_batch

COLLAGE_WEIGHT = 0.5
"""Of the zero-shot regularizer on CIFAR collages (GSP, supplement)."""


@dataclass(frozen=True, kw_only=True)
class DistractedSettings(ExperimentSettings):
    """Data and training."""

    data_dir: Path | None = None
    """CIFAR-100 or an image folder for collages; `glyphs` by default."""
    num_prototypes: int = 64
    inverse_temperature: float = 10.0
    transport_ratio: float = 0.2
    """The picture that counts fills a quarter of the canvas."""
    regularizer_weight: float | None = None
    """Of the zero-shot regularizer, in [0, 1], its share of the loss; by
    default the papers' 0.5 on collages, the recipe's 0.1 on `glyphs`."""
    steps: int = 600
    batch_size: int = 64

    def small(self) -> "DistractedSettings":
        """A handful of steps."""
        return replace(self, seeds=(0,), steps=2, batch_size=8)


def load_splits(
    settings: DistractedSettings, *, distilled: bool = False
) -> Any:
    """Collages of an image folder, or `glyphs`; small ones for a smoke test.

    Args:
        settings: Names the folder.
        distilled: Without what distracts.
    """
    if settings.data_dir is not None:
        from training.datasets.collage import collage_splits

        return collage_splits(settings.data_dir, distilled=distilled)
    from training.datasets import glyphs

    return glyphs.load(has_distractors=not distilled, **_sizes(settings))


def subject_cells(settings: DistractedSettings, side: str) -> Any:
    """In which cell of its canvas each image of `load_splits` shows its class.

    Args:
        settings: Names the folder.
        side: `"train"` or `"test"`.

    Returns:
        (num_images,), each in [0, 4): upper left, upper right, lower left,
        lower right.
    """
    if settings.data_dir is None:
        from training.datasets import glyphs

        return glyphs.letter_cells(side, **_sizes(settings))
    from training.datasets.collage import cell_of_picture

    pair = (load_splits(settings, distilled=one) for one in (False, True))
    return cell_of_picture(*(getattr(splits, side).images for splits in pair))


def _sizes(settings) -> dict[str, Any]:
    """Those of `glyphs`; small ones for a smoke test."""
    if not settings.smoke:
        return {}
    return {
        "train_classes": 4,
        "train_samples": 8,
        "validation_classes": 4,
        "test_classes": 6,
        "test_samples": 4,
    }


def short_recipe(
    base: Recipe,
    settings: DistractedSettings,
    images: Any,
    seed: int,
    **changes: Any,
) -> Recipe:
    """A recipe with an experiment's budget.

    What a regularizer does is logged; the zero-shot one has the weight of the
    settings, unless the recipe has one of its own.

    Args:
        base: What is compared.
        settings: Prototypes, steps and batches.
        images: What to learn from.
        seed: Of weights and batches.
        **changes: Further fields of the recipe.
    """
    recipe = replace(
        base,
        **balanced_batch(images, settings.batch_size),
        num_prototypes=settings.num_prototypes,
        inverse_temperature=settings.inverse_temperature,
        transport_ratio=settings.transport_ratio,
        steps=settings.steps,
        steps_per_evaluation=settings.steps,
        seed=seed,
        **changes,
    )
    weight = recipe.regularizer_weight
    if recipe.regularizer == "none" or weight == 0.0:
        return recipe
    if recipe.regularizer == "zsr" and weight is None:
        weight = zero_shot_weight(settings)
    return replace(
        recipe, regularizer_weight=weight, log_regularizer_share=True
    )


def zero_shot_weight(settings: DistractedSettings) -> float:
    """The zero-shot regularizer's share of the loss."""
    if settings.regularizer_weight is not None:
        return settings.regularizer_weight
    if settings.data_dir is not None:
        return COLLAGE_WEIGHT
    return REGULARIZER_WEIGHTS["zsr"]
