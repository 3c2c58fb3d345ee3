"""Checkpoints from which a killed run resumes exactly."""

import contextlib
import json
import os
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import keras

from keras_gsp.callbacks.exact_resume.callback_state import (
    callback_state,
    pack,
    set_callback_state,
    unpack,
)
from keras_gsp.callbacks.exact_resume.checkpoints import (
    newest_checkpoint,
    save_checkpoint,
)
from keras_gsp.embeddings.compat import set_initial_epoch
from keras_gsp.embeddings.processes import as_numpy, from_first_process
from keras_gsp.ops.arguments import check_count

FORMAT = "keras_gsp exact resume 1"


class ExactResume(keras.callbacks.Callback):
    """Resumes a killed `fit` so that its final weights are bit-identical.

    Writes one file per epoch with every variable of the model and optimizer,
    random generators included, the state of the other callbacks, and the
    position in the data. Writing is atomic: after `kill -9` at any moment
    there is a complete checkpoint. A truncated or foreign file is skipped with
    a warning.

    For endless data call `restore` before `fit` and start the data at the
    step it returns, as in the example. Without that call `fit` restores and
    warns, which is exact for data that start over every epoch. `fit` then
    skips the epochs that are done.

    The run itself must be deterministic: batches that are a function of the
    seed and the step (`gsp.data.class_balanced_batches`), a seed for every
    random layer, the same machine. Place this callback last. For more
    frequent checkpoints set a smaller `steps_per_epoch`.

    Args:
        directory: folder of the checkpoints of one run; made when missing.
            Of several processes the first reads and writes it.
        callbacks: the callbacks of the same `fit` that have a state
            (`EarlyStopping`, `ReduceLROnPlateau`, `ModelCheckpoint`), always
            in the same order. The state is `get_state()` if a callback has
            this method, otherwise its plain attributes.
        settings: dictionary of JSON values that must be the same when the run
            is resumed, for example the recipe and the seed. Default `None`:
            nothing is compared.
        save_every: epochs between two checkpoints, at least 1. Default 1.
        keep: number of checkpoints to keep, at least 1. Default 2.

    Raises:
        ValueError: `save_every` or `keep` below 1; when resuming, no usable
            checkpoint among those that are there, for example because of
            other settings. Nothing is overwritten then.
        TypeError: settings that JSON cannot hold.
        RuntimeError: `restore` with a model that is not built or compiled.

    Example:
    ```python
    import tempfile
    import keras
    import numpy as np
    import keras_gsp as gsp

    def batches(first_step):
        # Any data that are a function of the step; see gsp.data.
        step = first_step
        while True:
            random = np.random.default_rng(step)
            yield random.normal(size=(8, 4)), random.normal(size=(8, 1))
            step += 1

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    resume = gsp.callbacks.ExactResume(tempfile.mkdtemp())
    step = resume.restore(model)  # 0 in a new folder
    model.fit(
        batches(first_step=step),
        steps_per_epoch=5,
        epochs=2,
        callbacks=[resume],
        verbose=0,
    )
    ```

    Reference:
        `keras.callbacks.BackupAndRestore`, which saves neither random
        generators nor callbacks and does not write atomically.
    """

    # Counting steps must not make Keras wait for every batch.
    async_safe = True

    def __init__(
        self,
        directory: str | os.PathLike,
        *,
        callbacks: Sequence[keras.callbacks.Callback] = (),
        settings: dict[str, Any] | None = None,
        save_every: int = 1,
        keep: int = 2,
    ) -> None:
        super().__init__()
        check_count(save_every=save_every, keep=keep)
        self.directory = directory
        self.callbacks = callbacks
        self.settings = settings
        self.save_every = save_every
        self.keep = keep
        self.epoch = 0
        self.step = 0
        self._settings = _settings_as_json(settings)
        self._steps_per_epoch: int | None = None
        self._is_stopped = False
        self._callback_states = None
        self._restored_model = None
        self._last_batch = -1

    def restore(self, model: keras.Model) -> int:
        """Restores a model from the newest usable checkpoint.

        Everything is compared before anything is assigned. Afterwards `step`
        and `epoch` hold the position.

        Args:
            model: built and compiled as for the checkpoint.

        Returns:
            Steps done, at which the data must start; 0 without a checkpoint.
        """
        variables = training_variables(model)
        check = partial(self._check, model=model, variables=variables)
        found = from_first_process(
            lambda: newest_checkpoint(self.directory, check)
        )
        self._restored_model = model
        if found is None:
            return self.step
        manifest, arrays = found
        for name, variable in variables.items():
            variable.assign(arrays[name])
        self.epoch, self.step = manifest["epoch"], manifest["step"]
        self._steps_per_epoch = manifest["steps_per_epoch"]
        self._is_stopped = manifest["is_stopped"]
        self._callback_states = unpack(manifest["callback_states"], arrays)
        return self.step

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Restores the states of the callbacks and skips epochs done."""
        if self._restored_model is not self.model and self.restore(self.model):
            warnings.warn(
                f"`ExactResume` resumes in `fit` after epoch {self.epoch}, "
                f"step {self.step}. Unless the data start over every epoch, "
                "call `restore(model)` before `fit` and start them at the "
                "step it returns.",
                stacklevel=2,
            )
        steps = self.params.get("steps")
        if self._steps_per_epoch and steps:
            _check_equal("`steps_per_epoch`", self._steps_per_epoch, steps)
        # Here, not in `restore`: their own `on_train_begin` has reset them.
        if self._callback_states is not None:
            pairs = zip(self.callbacks, self._callback_states, strict=True)
            for callback, state in pairs:
                set_callback_state(callback, state)
        epochs = self.params["epochs"]
        set_initial_epoch(
            self.model, epochs if self._is_stopped else self.epoch
        )

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Resets the count of steps."""
        self._last_batch = -1

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Counts a step."""
        self._last_batch = batch

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Writes a checkpoint."""
        steps = self._last_batch + 1
        self.step += steps
        self.epoch = epoch + 1
        self._steps_per_epoch = self.params.get("steps") or steps
        self._is_stopped = bool(self.model.stop_training)
        is_last = self._is_stopped or self.epoch == self.params["epochs"]
        if is_last or self.epoch % self.save_every == 0:
            self._save()

    def on_train_end(self, logs: dict | None = None) -> None:
        """Lets a later `fit` begin at its first epoch."""
        set_initial_epoch(self.model, 0)
        self._restored_model = None

    def _save(self):
        arrays = {
            name: as_numpy(variable)
            for name, variable in training_variables(self.model).items()
        }
        states = [callback_state(callback) for callback in self.callbacks]
        manifest = {
            "format": FORMAT,
            "epoch": self.epoch,
            "step": self.step,
            "steps_per_epoch": self._steps_per_epoch,
            "is_stopped": self._is_stopped,
            "settings": self._settings,
            "optimizer": type(self.model.optimizer).__name__,
            "callbacks": _class_names(self.callbacks),
            "callback_states": pack(states, arrays, "callbacks"),
        }
        from_first_process(
            lambda: save_checkpoint(
                self.directory, self.step, manifest, arrays, keep=self.keep
            )
        )

    def _check(self, manifest, arrays, model, variables):
        """Raises `ValueError` unless a checkpoint fits this run."""
        _check_equal("The format", manifest.get("format"), FORMAT)
        _check_settings(manifest["settings"], self._settings)
        names = _class_names(self.callbacks)
        _check_equal("`callbacks`", manifest["callbacks"], names)
        name = type(model.optimizer).__name__
        _check_equal("The optimizer", manifest["optimizer"], name)
        _check_variables(arrays, variables)


def training_variables(model: keras.Model) -> dict:
    """Returns every variable of a model and its optimizer by name.

    Weights, states of random generators, optimizer slots and counters; not
    the metrics, which start over each epoch. Names are positions, because
    Keras numbers the paths differently in every process. Raises `RuntimeError`
    for a model that is not built or not compiled.
    """
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or not model.built:
        raise RuntimeError(
            "The model must be built and compiled before its state can be "
            "restored. Call it on one batch, and `compile`."
        )
    if not optimizer.built:
        strategy = getattr(model, "distribute_strategy", None)
        scope = strategy.scope() if strategy else contextlib.nullcontext()
        with scope:
            optimizer.build(model.trainable_variables)
    named = {f"model/{i}": v for i, v in enumerate(model.variables)}
    slots = {f"optimizer/{i}": v for i, v in enumerate(optimizer.variables)}
    return named | slots


def _class_names(callbacks):
    return [type(callback).__name__ for callback in callbacks]


def _settings_as_json(settings):
    """Settings as they are after reading them back."""
    try:
        return json.loads(json.dumps(settings))
    except TypeError as error:
        raise TypeError(
            "`settings` must be a dictionary that JSON can hold. "
            f"Received: settings={settings!r} ({error})."
        ) from error


def _check_settings(saved, given):
    if saved is None or given is None:
        return
    differing = [
        f"{key}: {saved.get(key)!r} in the checkpoint, {given.get(key)!r} now"
        for key in sorted(saved.keys() | given.keys())
        if saved.get(key) != given.get(key)
    ]
    if differing:
        raise ValueError(
            "`settings` must be those of the checkpoint. "
            f"Received: {'; '.join(differing)}."
        )


def _check_equal(name, saved, given):
    if saved != given:
        raise ValueError(
            f"{name} must be as in the checkpoint, {saved!r}. "
            f"Received: {given!r}."
        )


def _check_variables(arrays, variables):
    """Compares dtypes and shapes, without the arrays of callbacks."""
    saved = {
        name: f"{array.dtype.name} {array.shape}"
        for name, array in arrays.items()
        if not name.startswith("callbacks")
    }
    given = {
        name: f"{variable.dtype} {tuple(variable.shape)}"
        for name, variable in variables.items()
    }
    for name in sorted(saved.keys() | given.keys()):
        if saved.get(name) != given.get(name):
            path = variables[name].path if name in variables else name
            raise ValueError(
                "The model and its optimizer must have the variables of the "
                f"checkpoint. Received: `{path}`, {given.get(name)}; in the "
                f"checkpoint, {saved.get(name)}."
            )
