"""Progress of a run: a bar, the history file, TensorBoard."""

import importlib.util
import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from tqdm import tqdm

from keras_gsp.embeddings.processes import is_first_process
from training.runs.environment import peak_memory
from training.runs.run_directory import RunDirectory, write_text

# Seconds until the first line on a run's pace, and between two of them.
FIRST_LINE, NEXT_LINE = 5.0, 60.0


class ProgressBar(keras.callbacks.Callback):
    """One line for the whole run: steps, loss and best validation score.

    If standard error is no terminal, prints a line for each evaluation and,
    from the first seconds on, how long the rest takes.
    """

    def __init__(self, name: str, steps_per_epoch: int) -> None:
        super().__init__()
        self._name = name
        self._steps_per_epoch = steps_per_epoch
        self._bar: Any = None
        self._best = float("-inf")
        # Steps and time after the first, which compiles; time of a next line.
        self._first: tuple[int, float] | None = None
        self._next = 0.0

    def get_state(self) -> dict[str, float]:
        """Returns what a resumed run goes on from: no time of this process."""
        return {"best": self._best}

    def set_state(self, state: dict[str, float]) -> None:
        """Restores `get_state`."""
        self._best = state["best"]

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Shows the bar."""
        self._bar = tqdm(
            total=self.params["epochs"] * self._steps_per_epoch,
            desc=self._name,
            unit="step",
            # None: where standard error is no terminal.
            disable=None if is_first_process() else True,
        )

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Moves the bar to the step of a resumed run."""
        self._bar.update(epoch * self._steps_per_epoch - self._bar.n)

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Counts a step."""
        self._bar.update()
        if not self._bar.disable or not is_first_process():
            return
        step, now = int(self.model.optimizer.iterations), time.monotonic()
        if self._first is None:
            self._first, self._next = (step, now), now + FIRST_LINE
        elif now >= self._next:
            self._next = now + NEXT_LINE
            seconds = (now - self._first[1]) / (step - self._first[0])
            total = self.params["epochs"] * self._steps_per_epoch
            left = seconds * (total - step) / 60
            print(
                f"{self._name}: step {step} of {total}, {seconds:.2g} s a "
                f"step, {left:.1f} min left",
                flush=True,
            )

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Shows loss and score."""
        logs = logs or {}
        self._best = max(self._best, logs["val_map_at_r"])
        shown = {
            "loss": f"{logs['loss']:.3f}",
            "val_map_at_r": f"{logs['val_map_at_r']:.3f}",
            "best": f"{self._best:.3f}",
        }
        self._bar.set_postfix(shown)
        if self._bar.disable and is_first_process():
            step = (epoch + 1) * self._steps_per_epoch
            facts = ", ".join(f"{name} {text}" for name, text in shown.items())
            print(f"{self._name}: step {step}, {facts}", flush=True)

    def on_train_end(self, logs: dict | None = None) -> None:
        """Leaves the bar, and shows what was trained and the memory taken."""
        self._bar.close()
        if is_first_process() and not self.params["epochs"]:
            print(f"{self._name}: nothing trained, 0 steps")
        elif is_first_process():
            model = self.model
            trained, every = (
                sum(math.prod(weight.shape) for weight in weights)
                for weights in (model.trainable_weights, model.weights)
            )
            print(
                f"{self._name}: {trained:,} of {every:,} parameters trained, "
                f"peak memory {peak_memory() / 1e6:,.0f} MB"
            )


class History(keras.callbacks.Callback):
    """Writes every evaluation's logs to `history.jsonl` and TensorBoard.

    A resumed run drops lines that were written after its checkpoint.
    """

    def __init__(
        self, directory: RunDirectory, steps_per_epoch: int, scores: Any
    ) -> None:
        super().__init__()
        self._directory = directory
        self._scores = scores
        self._steps_per_epoch = steps_per_epoch
        self._writer: Any = None
        self._since = 0.0

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Writes the scores of step 0, opens TensorBoard's log if it can."""
        self._since = time.monotonic()
        found = self._scores.scores
        if int(self.model.optimizer.iterations) == 0 and found is not None:
            logs = {f"val_{name}": value for name, value in found.items()}
            logs = {k: v for k, v in logs.items() if "val_num_" not in k}
            self._write(0, logs)
        is_there = importlib.util.find_spec("tensorflow") is not None
        if not is_there or not is_first_process():
            return
        import tensorflow as tf

        folder = str(self._directory.tensorboard)
        self._writer = tf.summary.create_file_writer(folder)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Adds a line."""
        self._write((epoch + 1) * self._steps_per_epoch, logs or {})

    def _write(self, step, logs):
        if not is_first_process():
            return
        self._directory.check_is_there()
        scalars = {name: float(value) for name, value in logs.items()}
        lines = self._directory.read_history()
        lines = [line for line in lines if line["step"] < step]
        # Seconds of training, without the time before it was resumed.
        now, before = time.monotonic(), lines[-1]["seconds"] if lines else 0.0
        seconds = round(before + now - self._since, 3)
        self._since = now
        lines.append({"step": step, "seconds": seconds} | scalars)
        text = "".join(json.dumps(line) + "\n" for line in lines)
        write_text(self._directory.history, text)
        if self._writer is None:
            return
        import tensorflow as tf

        with self._writer.as_default(step=step):
            for name, value in scalars.items():
                tf.summary.scalar(name, value)
        self._writer.flush()

    def on_train_end(self, logs: dict | None = None) -> None:
        """Closes TensorBoard's log."""
        if self._writer is not None:
            self._writer.close()

    def get_state(self) -> dict:
        """Returns nothing: the state is in the history file."""
        return {}

    def set_state(self, state: dict) -> None:
        """Restores nothing: the state is in the history file."""


def best_evaluation(
    history: Sequence[Mapping[str, Any]], chosen_by: str
) -> Mapping[str, Any]:
    """Returns the evaluation whose weights were kept: the first of the best."""

    def score(line):
        found = line.get(f"val_{chosen_by}", -np.inf)
        return found if np.isfinite(found) else -np.inf

    return max(history, key=score)


def solved_problems(
    history: Sequence[Mapping[str, Any]], chosen_by: str
) -> dict[str, int]:
    """Counts the problems of chance constrained programming.

    Returns `num_problems`, all that began, and `scored_problem`, that of the
    weights that were kept: 1 is a single set of proxies.
    """
    best = best_evaluation(history, chosen_by)
    return {
        "num_problems": int(max(h.get("ccp_problem", 0) for h in history)),
        "scored_problem": int(best.get("ccp_problem", 0)),
    }
