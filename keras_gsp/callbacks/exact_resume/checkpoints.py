"""Checkpoint files: written atomically, verified, the last few kept.

A file is a plain NPZ archive: named arrays and a JSON text under
`manifest`. Nothing in it is pickled, so a hostile file cannot run code.
"""

import hashlib
import inspect
import json
import os
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import ml_dtypes
import numpy as np

from keras_gsp.storage.whole import whole_file

_MANIFEST = "manifest"
_REFUSED = RuntimeError, ValueError, zipfile.BadZipFile
# What reading may raise: a damaged header may ask for any size, or name a
# later version or a password.
_DAMAGED = AttributeError, EOFError, KeyError, MemoryError, OSError, TypeError


def write_checkpoint(
    path: str | os.PathLike, manifest: dict, arrays: dict
) -> None:
    """Writes a JSON value and NumPy arrays by name, atomically."""
    shapes = {
        name: {"shape": array.shape, "dtype": array.dtype.name}
        for name, array in arrays.items()
    }
    described = {"manifest": manifest, "arrays": shapes}
    described["sha256"] = _digest(arrays)
    text = np.frombuffer(json.dumps(described).encode(), "uint8")
    content: dict[str, Any] = {_MANIFEST: text}
    content |= {name: _storable(array) for name, array in arrays.items()}
    # A handle: NumPy would add ".npz" to a name.
    with whole_file(path) as aside, open(aside, "wb") as file:
        np.savez(file, **content)


def read_checkpoint(path: str | os.PathLike) -> tuple[dict, dict]:
    """Reads manifest and arrays of `write_checkpoint`; verifies every byte."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            described = json.loads(archive[_MANIFEST].tobytes())
            arrays = {
                name: _restored(archive[name], **description)
                for name, description in described["arrays"].items()
            }
            manifest, expected = described["manifest"], described["sha256"]
    except (*_DAMAGED, *_REFUSED, zlib.error) as error:
        raise ValueError(
            f"`{path}` is truncated, damaged or no checkpoint: "
            f"{type(error).__name__}: {error}"
        ) from error
    if _digest(arrays) != expected:
        raise ValueError(f"`{path}` is damaged: its checksum does not match.")
    return manifest, arrays


def _digest(arrays):
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.shape} {array.dtype.name} ".encode())
        digest.update(_storable(array).tobytes())
    return digest.hexdigest()


def _storable(array):
    """An array of a dtype that NPZ can hold; bfloat16 becomes bytes."""
    # Not `isbuiltin`, which is 0 for an unpickled dtype.
    if array.dtype.type.__module__ == "numpy":
        return array
    return np.frombuffer(array.tobytes(), "uint8")


def _restored(array, shape, dtype):
    if array.dtype.name == dtype:
        return array
    dtype = getattr(ml_dtypes, dtype)
    return np.frombuffer(array.tobytes(), dtype).reshape(shape)


def save_checkpoint(
    folder: str | os.PathLike,
    step: int,
    manifest: dict[str, Any],
    arrays: dict[str, Any],
) -> None:
    """Writes the checkpoint of a step and keeps the newest two."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_checkpoint(folder / f"step-{step:09d}.npz", manifest, arrays)
    # A later one was refused when this run began; it does not count.
    done = [path for path in _paths(folder) if _step(path) <= step]
    for path in [*done[:-2], *folder.glob("*.partial")]:
        path.unlink()


def newest_checkpoint(
    folder: str | os.PathLike, check: Callable[[dict, dict], None]
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Returns manifest and arrays of the newest usable checkpoint, or `None`.

    `check` raises `ValueError` if they do not fit. Refused newer ones are
    warned of; none that can be used is a `ValueError`.
    """
    refused = []
    for path in reversed(_paths(Path(folder))):
        try:
            manifest, arrays = read_checkpoint(path)
            check(manifest, arrays)
        except ValueError as error:
            refused.append(f"{path.name}: {error}")
            continue
        for reason in refused:
            warnings.warn(f"Refused a checkpoint, {reason}", stacklevel=3)
        return manifest, arrays
    if refused:
        raise ValueError(
            f"No checkpoint in `{folder}` can be resumed from; they are left "
            "unchanged. Use the settings and the model they were made with, "
            "or another directory to start over. " + " ".join(refused)
        )
    return None


def _paths(folder):
    """Checkpoints, oldest first."""
    return sorted(folder.glob("step-*.npz"), key=_step)


def _step(path):
    digits = path.stem.removeprefix("step-")
    return int(digits) if digits.isdigit() else -1


_NOT_STATE = {"_model", "params"}


def callback_state(callback: keras.callbacks.Callback) -> dict:
    """Returns `get_state()` of a callback, or its plain attributes by name.

    Plain are numbers, text, arrays, and lists and dictionaries of these; the
    arguments of the constructor are settings.
    """
    if hasattr(callback, "get_state"):
        return dict(callback.get_state())
    settings = inspect.signature(type(callback).__init__).parameters
    return {
        name: value
        for name, value in vars(callback).items()
        if name not in settings and name not in _NOT_STATE and _is_plain(value)
    }


def set_callback_state(callback: keras.callbacks.Callback, state: dict) -> None:
    """Restores a state that `callback_state` returned."""
    if hasattr(callback, "set_state"):
        callback.set_state(state)
        return
    for name, value in state.items():
        setattr(callback, name, value)


def pack(value: Any, arrays: dict, name: str) -> Any:
    """Splits a plain value into a JSON value, for `unpack`, and `arrays`."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray | np.generic) and value.dtype != object:
        arrays[name] = np.asarray(value)
        return {"array": name}
    if isinstance(value, list | tuple):
        items = [pack(v, arrays, f"{name}/{i}") for i, v in enumerate(value)]
        return {type(value).__name__: items}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        named = {k: pack(v, arrays, f"{name}/{k}") for k, v in value.items()}
        return {"dict": named}
    raise TypeError(
        "The state of a callback must be made of numbers, text, arrays, lists, "
        f"tuples and dicts. Received: {name} of type {type(value).__name__}."
    )


def unpack(packed: Any, arrays: dict) -> Any:
    """Inverts `pack`."""
    if not isinstance(packed, dict):
        return packed
    ((kind, content),) = packed.items()
    if kind == "array":
        return arrays[content]
    if kind == "dict":
        return {key: unpack(value, arrays) for key, value in content.items()}
    items = [unpack(value, arrays) for value in content]
    return tuple(items) if kind == "tuple" else items


def _is_plain(value):
    try:
        pack(value, {}, "")
    except TypeError:
        return False
    return True
