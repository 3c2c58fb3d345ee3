"""Callbacks of a run: scores, alternation, best weights, records."""

from typing import Any

import keras

import keras_gsp as gsp
from training.datasets.image_set import RetrievalSplits
from training.recipes.batches import evaluation_batches, pool_of
from training.recipes.recipe import Recipe
from training.runs.progress import History, ProgressBar
from training.runs.run_directory import RunDirectory


def build_callbacks(
    recipe: Recipe,
    splits: RetrievalSplits,
    directory: RunDirectory,
    label: str,
) -> Any:
    """Returns a run's callbacks: the scores first, which the others read."""
    every = recipe.interval
    scores = gsp.callbacks.RetrievalEvaluation(
        evaluation_batches(recipe, splits.validation),
        truncate_to=recipe.matryoshka_sizes[1:],
    )
    # One more than all: step 0 may stay the best.
    patience = recipe.patience or recipe.evaluations + 1
    callbacks = [scores, BestWeights(scores, patience)]
    if recipe.samples_proxies:
        alternation = gsp.callbacks.ChanceConstrainedProgramming(
            pool_of(recipe, splits.train),
            pool_size=recipe.ccp_pool_size,
            # A single problem never converges; its proxies are samples too.
            patience=recipe.ccp_patience if recipe.ccp == "on" else None,
            warmup_epochs=recipe.ccp_warmup,
            monitor="val_map_at_r",
            seed=recipe.seed,
        )
        callbacks.append(alternation)
    callbacks.append(History(directory, every, scores))
    return [*callbacks, ProgressBar(label, every)]


class BestWeights(keras.callbacks.EarlyStopping):
    """Keeps the weights with the best score, those before step 1 included."""

    def __init__(self, scores: Any, patience: int) -> None:
        super().__init__(
            "val_map_at_r",
            mode="max",
            patience=patience,
            restore_best_weights=True,
        )
        self.scores = scores

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Scores the untrained network, unless a run resumes."""
        super().on_train_begin(logs)
        if int(self.model.optimizer.iterations) == 0:
            self.best = self.scores.evaluate()["map_at_r"]
            self.best_weights = self.model.get_weights()
