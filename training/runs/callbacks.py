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
    monitor = f"val_{recipe.chosen_by}"
    callbacks: list[Any] = [
        gsp.callbacks.RetrievalEvaluation(
            evaluation_batches(recipe, splits.validation),
            truncate_to=recipe.matryoshka_sizes[1:],
        ),
        keras.callbacks.EarlyStopping(
            monitor,
            mode="max",
            patience=recipe.patience or recipe.evaluations,
            restore_best_weights=True,
        ),
    ]
    if recipe.schedule == "plateau":
        waiting = recipe.plateau_patience, recipe.plateau_factor
        callbacks.append(RateOnPlateau(monitor, *waiting))
    if recipe.samples_proxies:
        callbacks.append(_alternation(recipe, splits.train, monitor))
    if recipe.neighbor_classes is not None:
        callbacks.append(
            gsp.callbacks.HardClasses(
                evaluation_batches(recipe, splits.train),
                num_neighbors=recipe.neighbor_classes,
            )
        )
    if recipe.memory != "none":
        rows = np.linspace(0, len(splits.train) - 1, 128).astype(int)
        sample = splits.train.subset(np.unique(rows))
        batches = evaluation_batches(recipe, sample)
        callbacks.append(gsp.callbacks.MemoryDrift(batches))
    if getattr(recipe.pooling_arguments, "learn_ratio", False):
        callbacks.append(LearnedRatio())
    every = recipe.interval
    return [*callbacks, History(directory, every), ProgressBar(label, every)]


def _alternation(recipe, images, monitor):
    pool = pool_of(recipe, images)
    is_recent = recipe.uses_recent_samples
    return gsp.callbacks.ChanceConstrainedProgramming(
        "recent" if is_recent else pool,
        first_pool=pool if is_recent else None,
        pool_size=recipe.ccp_pool_size,
        # A single problem never converges; its proxies are samples too.
        patience=recipe.ccp_patience if recipe.ccp == "on" else None,
        warmup_epochs=recipe.ccp_warmup,
        restore_anchors=recipe.ccp_rollback,
        monitor=monitor,
        seed=recipe.seed,
    )


class LearnedRatio(keras.callbacks.Callback):
    """Logs the transport ratio that GSP learns."""

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Adds `transport_ratio`, in (0, 1)."""
        ratio = self.model.encoder.get_layer("pooling").ratio
        logs = {} if logs is None else logs
        logs["transport_ratio"] = float(keras.ops.convert_to_numpy(ratio))
