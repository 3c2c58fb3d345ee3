"""Trains one run on several devices, with the engines of Keras.

`data` is `keras.distribution.DataParallel` and `model`, which cuts proxies and
class embeddings by class, `ModelParallel`, both on JAX; `mirrored` is
`tf.distribute.MirroredStrategy`. The loss sees the global batch with each, so
the numbers are the same, but for batch normalization with `mirrored`: see
`docs/guides/distribute.md`, also on several processes.
"""

import os
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from training.recipes.recipe import Recipe

Kind = Literal["none", "data", "model", "mirrored"]
BACKENDS = {"data": "jax", "model": "jax", "mirrored": "tensorflow"}

# Environment variables of Keras.
NUM_PROCESSES = "KERAS_DISTRIBUTION_NUM_PROCESSES"
PROCESS_ID = "KERAS_DISTRIBUTION_PROCESS_ID"
ADDRESSES = "KERAS_DISTRIBUTION_JOB_ADDRESSES"
# Seconds to wait for the first process.
PATIENCE = "KERAS_GSP_CONNECT_SECONDS"
# Words in JAX's errors when another process has ended.
LOST = ("Gloo", "UNAVAILABLE", "DEADLINE_EXCEEDED", "oordination", "eartbeat")

# Weights with a row for each class, by path, and how their axes are cut. An
# optimizer gives its slots the layout of their weight.
CLASS_AXES = {
    r".*proxies": ("model", None, None),
    r".*class_embeddings/embeddings": ("model", None),
}


@dataclass(frozen=True)
class Distribution:
    """Distribution of a run over devices; not a part of its recipe.

    `model` cuts proxies and class embeddings into `model_devices` parts, at
    least 2, and the batch along the other axis of the mesh.
    """

    kind: Kind = "none"
    model_devices: int = 2

    @property
    def num_processes(self) -> int:
        """Number of processes that train together, by the environment."""
        if self.kind == "none":
            return 1
        return int(os.environ.get(NUM_PROCESSES, "1"))

    @property
    def is_first(self) -> bool:
        """Whether this process prints results."""
        return self.num_processes == 1 or os.environ.get(PROCESS_ID) == "0"

    @contextmanager
    def together(self) -> Iterator[None]:
        """Connects the processes before anything is computed, and ends all."""
        if self.num_processes == 1 or self.kind == "mirrored":
            yield
            return
        _check_backend(self.kind)
        _meet_other_processes()
        try:
            yield
        except BaseException as error:  # noqa: BLE001, the process ends
            _end_process(error)

    def check(self, recipe: Recipe, num_classes: int | None = None) -> None:
        """Raises `ValueError` if a recipe cannot be trained on these devices.

        `num_classes` are the training classes, once they are known.
        """
        if self.kind == "none":
            return
        _check_backend(self.kind)
        for problem in self._problems(recipe, num_classes):
            raise ValueError(problem)

    def scope(self) -> AbstractContextManager[Any]:
        """Returns the context in which models use the devices.

        Enter it after `clear_session`, which resets it.
        """
        if self.kind == "none":
            return nullcontext()
        if self.kind == "mirrored":
            return _mirrored_strategy(tuple(devices_of(self.kind))).scope()
        return self._on_jax().scope()

    def positions(self, batch_size: int) -> np.ndarray | None:
        """Returns the rows of a batch that this process feeds; None: all."""
        if self.num_processes == 1:
            return None
        import keras

        shape = (batch_size,)
        layout = keras.distribution.distribution().get_data_layout(shape)
        parts = layout.backend_layout.addressable_devices_indices_map(shape)
        rows = np.arange(batch_size)
        return np.unique([rows[part] for part in parts.values()])

    @property
    def settings(self) -> dict[str, str]:
        """Facts for `settings.json`: none for `"none"`.

        A killed run resumes bit by bit only on as many devices.
        """
        if self.kind == "none":
            return {}
        count = f"{self.kind} on {len(devices_of(self.kind))} devices"
        if self.num_processes > 1:
            count += f" of {self.num_processes} processes"
        if self.kind == "model":
            count += f", {self.model_devices} for the classes"
        return {"distribution": count}

    def _on_jax(self):
        import keras

        if self.kind == "data":
            return keras.distribution.DataParallel(auto_shard_dataset=False)
        devices = devices_of(self.kind)
        mesh = keras.distribution.DeviceMesh(
            shape=(len(devices) // self.model_devices, self.model_devices),
            axis_names=["batch", "model"],
            devices=devices,
        )
        layout = keras.distribution.LayoutMap(mesh)
        for path, axes in CLASS_AXES.items():
            layout[path] = axes
        return keras.distribution.ModelParallel(
            layout_map=layout, batch_dim_name="batch", auto_shard_dataset=False
        )

    def _problems(self, recipe, num_classes):
        """Yields why a recipe cannot be trained on these devices."""
        if self.kind == "mirrored":
            yield from _mirrored_problems(recipe, self.num_processes)
        devices = devices_of(self.kind)
        parts = len(devices)
        if parts < 2:
            yield (
                f"`--distribution {self.kind}` needs 2 devices or more. "
                f"Received: {', '.join(devices)}. Leave the option out."
            )
        if self.kind == "model":
            received = f"Received: model_devices={self.model_devices}."
            if self.model_devices < 2 or parts % self.model_devices:
                yield (
                    "`--model-devices` must be at least 2 and divide the "
                    f"{parts} devices. {received}"
                )
            if num_classes is not None and num_classes % self.model_devices:
                yield (
                    "`--model-devices` must divide the number of training "
                    f"classes, {num_classes}. {received}"
                )
            if not (recipe.uses_proxies or recipe.regularizer == "zsr"):
                yield (
                    "`--distribution model` cuts proxies or class embeddings. "
                    f"Received: a recipe with neither, loss={recipe.loss}."
                )
            parts //= self.model_devices
        if recipe.batch_size % (parts * recipe.batch_chunks):
            chunks = "" if recipe.batch_chunks == 1 else " and its chunks"
            yield (
                f"The batch must be cut evenly by {parts} devices{chunks}. "
                f"Received: classes_per_batch={recipe.classes_per_batch}, "
                f"samples_per_class={recipe.samples_per_class}, "
                f"batch_chunks={recipe.batch_chunks}."
            )


def _mirrored_problems(recipe, num_processes):
    on_jax = "KERAS_BACKEND=jax and --distribution data"
    # TensorFlow's MultiWorkerMirroredStrategy fails inside Keras 3
    # (keras-team/keras#20585).
    found = {"TF_CONFIG": os.environ.get("TF_CONFIG")}
    if num_processes > 1:
        found[NUM_PROCESSES] = str(num_processes)
    for name, value in found.items():
        if value:
            yield (
                "`--distribution mirrored` must run in one process. "
                f"Received: {name}={value}. Unset it, or train with {on_jax}: "
                "docs/guides/distribute.md."
            )
    for name, reason in (
        ("jit_compile", "XLA cannot read a replica's variables"),
        ("log_regularizer_share", "it would be that of one replica's part"),
    ):
        if getattr(recipe, name):
            yield (
                f"`{name}` must be False with `--distribution mirrored`: "
                f"{reason}. Received: {name}=True. It works with {on_jax}."
            )


NONE = Distribution()
"""One device, as if the option were not there."""


@cache
def _mirrored_strategy(devices):
    """Returns one for each process: two would mix their reductions."""
    import tensorflow as tf

    return tf.distribute.MirroredStrategy(devices)


def devices_of(kind: Kind) -> list[str]:
    """Lists the devices of an engine: accelerators if there are any."""
    if kind == "mirrored":
        import tensorflow as tf

        found = tf.config.list_logical_devices("GPU")
        found = found or tf.config.list_logical_devices("CPU")
        return [device.name for device in found]
    import keras

    return list(keras.distribution.list_devices())


def _check_backend(kind):
    import keras

    found, needed = keras.backend.backend(), BACKENDS[kind]
    if found != needed:
        raise ValueError(
            f"`--distribution {kind}` needs the backend {needed}. Received: "
            f"{found}. Set KERAS_BACKEND={needed}."
        )


def _meet_other_processes():
    """Connects as Keras documents it, with early errors."""
    number, addresses = os.environ.get(PROCESS_ID), os.environ.get(ADDRESSES)
    numbers = [str(i) for i in range(int(os.environ[NUM_PROCESSES]))]
    host, _, port = (addresses or "").split(",")[0].rpartition(":")
    if number not in numbers or not port.isdigit():
        raise ValueError(
            f"Several processes need {ADDRESSES}=HOST:PORT, where the first "
            f"one listens, and {PROCESS_ID} in 0 to {numbers[-1]}, a number "
            f"for each. Received: {ADDRESSES}={addresses}, "
            f"{PROCESS_ID}={number}."
        )
    if number != "0":
        _wait_for_first(host, int(port))
    import jax
    import keras

    # For processors; accelerators have their own collectives.
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    keras.distribution.initialize()


def _wait_for_first(host, port):
    """Waits; JAX itself would wait minutes and end with a stack trace."""
    seconds = float(os.environ.get(PATIENCE, "120"))
    end = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host, port), timeout=5).close()
            return
        except OSError as error:
            if time.monotonic() > end:
                raise ConnectionError(
                    f"The first process must listen at {ADDRESSES}={host}:"
                    f"{port}. Received after {seconds:g} s: {error}. Give "
                    f"the same command there with {PROCESS_ID}=0."
                ) from error
            time.sleep(0.2)


def _end_process(error):
    """Prints the reason and exits at once.

    An orderly exit waits for all processes; after a failure of one they would
    wait for each other forever.
    """
    if any(word in str(error) for word in LOST):
        print(
            "error: another process of this training has ended. Give the "
            "same command to all of them: training resumes from the last "
            f"evaluation. {type(error).__name__}: {error}",
            file=sys.stderr,
        )
    elif isinstance(error, ValueError | TypeError | OSError):
        print(f"error: {error}", file=sys.stderr)
    else:
        traceback.print_exception(error)
    sys.stderr.flush()
    sys.stdout.flush()
    if os.environ[PROCESS_ID] == "0":
        # It hosts the service that connects the others: they end first.
        time.sleep(2)
    os._exit(1)
