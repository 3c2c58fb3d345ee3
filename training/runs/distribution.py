"""Trains one run on several devices with `keras.distribution`, on JAX.

`data` is `DataParallel`; `model` is `ModelParallel`, which splits proxies and
class embeddings by class: see `docs/guides/distribute.md`.
"""

import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from training.recipes.recipe import Recipe

Kind = Literal["none", "data", "model"]

# Environment variables of Keras.
NUM_PROCESSES = "KERAS_DISTRIBUTION_NUM_PROCESSES"
PROCESS_ID = "KERAS_DISTRIBUTION_PROCESS_ID"
ADDRESSES = "KERAS_DISTRIBUTION_JOB_ADDRESSES"

# Weights with a row for each class, by path, and how `model` splits their axes
# in two. An optimizer gives its slots the layout of their weight.
CLASS_AXES = {
    r".*proxies": ("model", None, None),
    r".*class_embeddings/embeddings": ("model", None),
}


@dataclass(frozen=True)
class Distribution:
    """Distribution of a run over devices; not a part of its recipe."""

    kind: Kind = "none"

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
        if self.num_processes == 1:
            yield
            return
        self._check_backend()
        _check_address()
        import jax
        import keras

        # For processors; accelerators have their own collectives.
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        keras.distribution.initialize()
        try:
            yield
        except BaseException as error:  # noqa: BLE001, the process ends
            _end_process(error)

    def check(self, recipe: Recipe, num_classes: int | None = None) -> None:
        """Raises `ValueError` for a recipe that these devices cannot train."""
        if self.kind == "none":
            return
        self._check_backend()
        devices, is_model = devices_here(), self.kind == "model"
        count, names = len(devices), ", ".join(devices)
        is_even = count > 1 and not (is_model and count % 2)
        self._need(is_even, "an even number of devices", names)
        if is_model and num_classes is not None:
            needed = "an even number of training classes"
            self._need(num_classes % 2 == 0, needed, num_classes)
        parts = count // 2 if is_model else count
        self._need(
            recipe.batch_size % parts == 0,
            f"a batch that is a multiple of {parts} devices",
            f"a batch of {recipe.batch_size}",
        )

    def scope(self) -> AbstractContextManager[Any]:
        """Returns the context of models; `clear_session` would reset it."""
        if self.kind == "none":
            return nullcontext()
        from keras import distribution

        if self.kind == "data":
            return distribution.DataParallel(auto_shard_dataset=False).scope()
        devices = devices_here()
        shape = len(devices) // 2, 2
        mesh = distribution.DeviceMesh(shape, ["batch", "model"], devices)
        layout = distribution.LayoutMap(mesh)
        for path, axes in CLASS_AXES.items():
            layout[path] = axes
        return distribution.ModelParallel(
            layout_map=layout, batch_dim_name="batch", auto_shard_dataset=False
        ).scope()

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
        """Facts for `settings.json`; a run resumes on as many devices only."""
        if self.kind == "none":
            return {}
        count = f"{self.kind} on {len(devices_here())} devices"
        if self.num_processes > 1:
            count += f" of {self.num_processes} processes"
        return {"distribution": count}

    def _check_backend(self):
        import keras

        backend = keras.backend.backend()
        received = f"{backend}. Set KERAS_BACKEND=jax"
        self._need(backend == "jax", "the backend jax", received)

    def _need(self, is_met, needed, received):
        if not is_met:
            raise ValueError(
                f"`--distribution {self.kind}` needs {needed}. Received: "
                f"{received}."
            )


NONE = Distribution()
"""One device, as if the option were not there."""


def devices_here() -> list[str]:
    """Lists the devices of all processes: accelerators if there are any."""
    import keras

    return list(keras.distribution.list_devices())


def _check_address():
    """Checks the environment, on which JAX would wait for minutes."""
    number, addresses = os.environ.get(PROCESS_ID), os.environ.get(ADDRESSES)
    numbers = [str(i) for i in range(int(os.environ[NUM_PROCESSES]))]
    port = (addresses or "").split(",")[0].rpartition(":")[2]
    if number not in numbers or not port.isdigit():
        raise ValueError(
            f"Several processes need {ADDRESSES}=HOST:PORT, where the first "
            f"one listens, and {PROCESS_ID} in 0 to {numbers[-1]}, a number "
            f"for each. Received: {ADDRESSES}={addresses}, "
            f"{PROCESS_ID}={number}."
        )


def _end_process(error):
    """Exits at once: an orderly exit would wait for the other processes."""
    traceback.print_exception(error)
    print(
        "error: this process, or another process of this training, has ended. "
        "Give the same command to all of them: training resumes from the last "
        "evaluation.",
        file=sys.stderr,
        flush=True,
    )
    sys.stdout.flush()
    if os.environ[PROCESS_ID] == "0":
        # It hosts the service that connects the others: they end first.
        time.sleep(2)
    os._exit(1)
