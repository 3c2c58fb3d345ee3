"""Callbacks of a run: scores, alternation, best weights, records."""

from typing import Any

import keras
import numpy as np

import keras_gsp as gsp
from training.datasets.image_set import RetrievalSplits
from training.recipes.batches import evaluation_batches, pool_of
from training.recipes.optimizer import RateOnPlateau
from training.recipes.recipe import Recipe
from training.runs.progress import History, ProgressBar
from training.runs.run_directory import RunDirectory


def build_callbacks(
    recipe: Recipe,
    splits: RetrievalSplits,
    directory: RunDirectory,
    label: str,
) -> Any:
    """Returns a run's callbacks, but for the one that makes it resumable.

    The scores come first, because the others read them. `label` is the text
    before the progress bar.
    """
    every = recipe.interval
    return [
        gsp.callbacks.RetrievalEvaluation(
            evaluation_batches(recipe, splits.validation)
        ),
        keras.callbacks.EarlyStopping(
            f"val_{recipe.chosen_by}",
            mode="max",
            patience=recipe.patience or recipe.evaluations,
            restore_best_weights=True,
        ),
        *_plateau(recipe),
        *_alternation(recipe, splits),
        *_memory_drift(recipe, splits),
        *([LearnedRatio()] if _learns_ratio(recipe) else []),
        History(directory, every),
        ProgressBar(label, every),
    ]


class LearnedRatio(keras.callbacks.Callback):
    """Logs the transport ratio that GSP learns."""

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Adds `transport_ratio`, in (0, 1)."""
        ratio = self.model.encoder.get_layer("pooling").ratio
        logs = {} if logs is None else logs
        logs["transport_ratio"] = float(keras.ops.convert_to_numpy(ratio))


def _learns_ratio(recipe):
    return getattr(recipe.pooling_arguments, "learn_ratio", False)


def _memory_drift(recipe, splits):
    if recipe.memory == "none":
        return []
    rows = np.linspace(0, len(splits.train) - 1, 128).astype(int)
    sample = splits.train.subset(np.unique(rows))
    return [gsp.callbacks.MemoryDrift(evaluation_batches(recipe, sample))]


def _plateau(recipe):
    if recipe.schedule != "plateau":
        return []
    return [
        RateOnPlateau(
            f"val_{recipe.chosen_by}",
            recipe.plateau_patience,
            recipe.plateau_factor,
        )
    ]


def _alternation(recipe, splits):
    if not recipe.samples_proxies:
        return []
    pool = pool_of(recipe, splits.train)
    is_recent = recipe.ccp == "on" and recipe.ccp_pool == "recent"
    return [
        gsp.callbacks.ChanceConstrainedProgramming(
            "recent" if is_recent else pool,
            first_pool=pool if is_recent else None,
            pool_size=recipe.ccp_pool_size,
            # A single problem never converges; its proxies are samples too.
            patience=recipe.ccp_patience if recipe.ccp == "on" else None,
            warmup_epochs=recipe.ccp_warmup,
            restore_anchors=recipe.ccp_rollback,
            monitor=f"val_{recipe.chosen_by}",
            seed=recipe.seed,
        )
    ]
