"""The state of Keras callbacks, in attributes that Keras does not save."""

import inspect
from typing import Any

import keras
import numpy as np

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
