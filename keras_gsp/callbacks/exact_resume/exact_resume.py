"""Checkpoints from which a killed run resumes exactly."""

import contextlib
import json
import os
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import keras

from keras_gsp._compat import set_initial_epoch
from keras_gsp._processes import as_numpy, from_first_process
from keras_gsp.callbacks.exact_resume.checkpoints import (
    callback_state,
    newest_checkpoint,
    pack,
    save_checkpoint,
    set_callback_state,
    unpack,
)
from keras_gsp.callbacks.step_counter import StepCounter

FORMAT = "keras_gsp exact resume 1"


class ExactResume(StepCounter):
    """Resumes a killed `fit` so that its final weights are bit-identical.

    Writes one file per epoch with every variable of the model and optimizer,
    random generators included, the state of the other callbacks, and the
    position in the data, and keeps the newest two. Writing is atomic: after
    `kill -9` at any moment there is a complete checkpoint. A truncated or
    foreign file is skipped with a warning.

    For endless data call `restore` before `fit` and start the data at the
    step it returns, as in the example. Without that call `fit` restores and
    warns, which is exact for data that start over every epoch.

    The run itself must be deterministic: batches that are a function of the
    seed and the step (`gsp.data.image_batches`), a seed for every
    random layer, the same machine. Place this callback last. For more
    frequent checkpoints set a smaller `steps_per_epoch`.

    Args:
        directory: folder of the checkpoints of one run; made when missing.
            Of several processes the first reads and writes it.
        callbacks: the callbacks of the same `fit` that have a state
            (`EarlyStopping`, `ReduceLROnPlateau`, `ModelCheckpoint`,
            `SwapEMAWeights`), always in the same order: `get_state()`, or
            their plain attributes.
        settings: dictionary of JSON values that must be the same when the run
            is resumed, for example the recipe and the seed.

    Raises:
        ValueError: when resuming, no usable checkpoint among those that are
            there, for example because of other settings.
        TypeError: settings that JSON cannot hold.
        RuntimeError: `restore` with a model that is not built or compiled.

    Example:
    ```python
    import tempfile

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

    def __init__(
        self,
        directory: str | os.PathLike,
        *,
        callbacks: Sequence[keras.callbacks.Callback] = (),
        settings: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.directory = directory
        self.callbacks = callbacks
        self.settings = settings
        self.epoch = 0
        self.step = 0
        try:
            self._settings = json.loads(json.dumps(settings))
        except TypeError as error:
            raise TypeError(
                "`settings` must be a dictionary that JSON can hold. "
                f"Received: settings={settings!r} ({error})."
            ) from error
        self._steps_per_epoch: int | None = None
        self._is_stopped = False
        self._callback_states = None
        self._restored_model = None

    def restore(self, model: keras.Model) -> int:
        """Restores a built and compiled model from the newest checkpoint.

        Everything is compared before anything is assigned. Returns the steps
        done, at which the data must start; 0 without a checkpoint.
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
            _check_equal({"`steps_per_epoch`": (self._steps_per_epoch, steps)})
        # Here, not in `restore`: their own `on_train_begin` has reset them.
        if self._callback_states is not None:
            pairs = zip(self.callbacks, self._callback_states, strict=True)
            for callback, state in pairs:
                set_callback_state(callback, state)
        epochs = self.params["epochs"]
        set_initial_epoch(
            self.model, epochs if self._is_stopped else self.epoch
        )

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        steps = self.num_steps
        self.step += steps
        self.epoch = epoch + 1
        self._steps_per_epoch = self.params.get("steps") or steps
        self._is_stopped = bool(self.model.stop_training)
        arrays = {
            name: as_numpy(variable)
            for name, variable in training_variables(self.model).items()
        }
        states = [callback_state(callback) for callback in self.callbacks]
        manifest = {
            **self._described(self.model),
            "epoch": self.epoch,
            "step": self.step,
            "steps_per_epoch": self._steps_per_epoch,
            "is_stopped": self._is_stopped,
            "settings": self._settings,
            "callback_states": pack(states, arrays, "callbacks"),
        }
        from_first_process(
            lambda: save_checkpoint(self.directory, self.step, manifest, arrays)
        )

    def on_train_end(self, logs: dict | None = None) -> None:
        set_initial_epoch(self.model, 0)
        self._restored_model = None

    def _described(self, model):
        return {
            "format": FORMAT,
            "optimizer": type(model.optimizer).__name__,
            "callbacks": [type(one).__name__ for one in self.callbacks],
        }

    def _check(self, manifest, arrays, model, variables):
        """Raises `ValueError` unless a checkpoint fits this run."""
        own = self._described(model)
        facts = {name: (manifest.get(name), own[name]) for name in own}
        saved = manifest.get("settings")
        if saved is not None and self._settings is not None:
            for name in sorted(saved.keys() | self._settings.keys()):
                pair = saved.get(name), self._settings.get(name)
                facts[f"`settings`, {name}"] = pair
        names = {name for name in arrays if not name.startswith("callbacks")}
        for name in sorted(names | variables.keys()):
            kept, own = arrays.get(name), variables.get(name)
            facts[f"{name} {getattr(own, 'path', '')}"] = (
                None if kept is None else f"{kept.dtype.name} {kept.shape}",
                None if own is None else f"{own.dtype} {tuple(own.shape)}",
            )
        _check_equal(facts)


def training_variables(model: keras.Model) -> dict:
    """Returns every variable of a model and its optimizer by name.

    Not the metrics, which start over each epoch. Names are positions, because
    Keras numbers the paths differently in every process.
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


def _check_equal(facts):
    """Raises for a fact that differs, of pairs in the checkpoint and now."""
    for name, (saved, given) in facts.items():
        if saved != given:
            raise ValueError(
                "A run must be resumed as it began. Received: "
                f"{name}: {saved!r} in the checkpoint, {given!r} now."
            )
