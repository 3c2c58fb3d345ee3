"""Callbacks of a run: scores, alternation, best weights, a history."""

import importlib.util
import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from tqdm import tqdm

import keras_gsp as gsp
from keras_gsp._processes import is_first_process
from training.datasets.image_set import RetrievalSplits
from training.recipes.batches import evaluation_batches, pool_of
from training.recipes.recipe import Recipe
from training.runs.run_directory import RunDirectory, write_text


def build_callbacks(
    recipe: Recipe,
    splits: RetrievalSplits,
    directory: RunDirectory,
    label: str,
) -> Any:
    """Returns a run's callbacks: the scores first, which the others read."""
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
    return [*callbacks, History(label, directory, recipe.interval, scores)]


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


class History(keras.callbacks.Callback):
    """Shows a run's progress and keeps the logs of every evaluation.

    In `history.jsonl` and TensorBoard; the best score may be that before the
    first step. A resumed run drops lines that were written after its
    checkpoint. If standard error is no terminal, an evaluation is a line.
    """

    def __init__(
        self, name: str, directory: RunDirectory, every: int, evaluation: Any
    ) -> None:
        super().__init__()
        self.name, self.directory, self.every = name, directory, every
        self.evaluation, self.best = evaluation, (float("-inf"), 0)
        self._bar: Any = None
        self._writer: Any = None
        self._since = 0.0

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Opens the bar, TensorBoard's log if it can; writes step 0."""
        self._since = time.monotonic()
        has_tensorflow = importlib.util.find_spec("tensorflow") is not None
        if has_tensorflow and is_first_process():
            import tensorflow as tf

            folder = str(self.directory.tensorboard)
            self._writer = tf.summary.create_file_writer(folder)
        self._bar = tqdm(
            total=self.params["epochs"] * self.every,
            desc=self.name,
            unit="step",
            # None: where standard error is no terminal.
            disable=None if is_first_process() else True,
        )
        scores = self.evaluation.scores
        if int(self.model.optimizer.iterations) == 0 and scores is not None:
            self.best = scores["map_at_r"], 0
            numbers = {k: v for k, v in scores.items() if k[:4] != "num_"}
            self._write(0, {f"val_{k}": v for k, v in numbers.items()})

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Moves the bar to the step of a resumed run."""
        self._bar.update(epoch * self.every - self._bar.n)

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Counts a step."""
        self._bar.update()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Adds a line; shows loss and score."""
        logs, step = logs or {}, (epoch + 1) * self.every
        self._write(step, logs)
        if logs["val_map_at_r"] > self.best[0]:
            self.best = logs["val_map_at_r"], step
        shown = {
            "loss": f"{logs['loss']:.3f}",
            "val_map_at_r": f"{logs['val_map_at_r']:.3f}",
            "best": "{:.3f} (step {})".format(*self.best),
        }
        self._bar.set_postfix(shown)
        if self._bar.disable and is_first_process():
            facts = ", ".join(f"{name} {text}" for name, text in shown.items())
            print(f"{self.name}: step {step}, {facts}", flush=True)

    def on_train_end(self, logs: dict | None = None) -> None:
        """Closes bar and log, and shows how much was trained."""
        self._bar.close()
        if self._writer is not None:
            self._writer.close()
        if not is_first_process():
            return
        if not self.params["epochs"]:
            print(f"{self.name}: nothing trained, 0 steps")
            return
        trained, every = (
            sum(math.prod(weight.shape) for weight in weights)
            for weights in (self.model.trainable_weights, self.model.weights)
        )
        print(f"{self.name}: {trained:,} of {every:,} parameters trained")

    def _write(self, step, logs):
        if not is_first_process():
            return
        scalars = {name: float(value) for name, value in logs.items()}
        lines = self.directory.read_history()
        lines = [line for line in lines if line["step"] < step]
        # Seconds of training, without the time before it was resumed.
        now, before = time.monotonic(), lines[-1]["seconds"] if lines else 0.0
        seconds = round(before + now - self._since, 3)
        self._since = now
        lines.append({"step": step, "seconds": seconds} | scalars)
        text = "".join(json.dumps(line) + "\n" for line in lines)
        write_text(self.directory.history, text)
        if self._writer is None:
            return
        import tensorflow as tf

        with self._writer.as_default(step=step):
            for name, value in scalars.items():
                tf.summary.scalar(name, value)
        self._writer.flush()

    def get_state(self) -> dict:
        """Returns the best score; the rest is in the history file."""
        return {"best": self.best}

    def set_state(self, state: dict) -> None:
        """Restores the best score."""
        self.best = state["best"]


def kept_line(history: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Returns the evaluation whose weights are kept, the first of the best."""
    scores = [line.get("val_map_at_r", -np.inf) for line in history]
    best = np.argmax(np.where(np.isfinite(scores), scores, -np.inf))
    return history[int(best)]


def solved_problems(
    history: Sequence[Mapping[str, Any]],
) -> dict[str, int]:
    """Counts the problems of chance constrained programming.

    Returns `num_problems`, all that began, and `scored_problem`, that of the
    weights that were kept: 1 is a single set of proxies.
    """
    problems = [int(line.get("ccp_problem", 0)) for line in history]
    scored = int(kept_line(history).get("ccp_problem", 0))
    return {"num_problems": max(problems), "scored_problem": scored}
