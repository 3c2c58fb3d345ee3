"""What a Keras callback remembers between epochs, as plain values.

`EarlyStopping`, `ReduceLROnPlateau` and `ModelCheckpoint` keep their best
value and their counters in ordinary attributes, which Keras saves nowhere.
"""

import inspect
from typing import Any

import numpy as np

from keras_gsp.ops.tensor import Tensor

NOT_STATE = {"_model", "params"}


def callback_state(callback: Any) -> dict:
    """Returns what a callback remembers: plain attributes by name.

    A callback with a method `get_state` says it itself. Of every other one
    it is the attributes that hold numbers, text, arrays, or lists and
    dictionaries of these, and are not arguments of its constructor: those
    are settings.

    Args:
        callback: any Keras callback.
    """
    if hasattr(callback, "get_state"):
        return dict(callback.get_state())
    settings = inspect.signature(type(callback).__init__).parameters
    return {
        name: value
        for name, value in vars(callback).items()
        if name not in settings and name not in NOT_STATE and _is_plain(value)
    }


def set_callback_state(callback: Any, state: dict) -> None:
    """Makes a callback remember what another one of its class remembered.

    Args:
        callback: any Keras callback, constructed as the other one was.
        state: what `callback_state` returned.
    """
    if hasattr(callback, "set_state"):
        callback.set_state(state)
        return
    for name, value in state.items():
        setattr(callback, name, value)


def pack(value: Tensor, arrays: dict, name: str) -> Any:
    """Splits a plain value into what JSON can hold and arrays.

    Args:
        value: a plain value, see `callback_state`.
        arrays: the arrays found are added here.
        name: prefix of the names they get.

    Returns:
        A value for `unpack`, to be written as JSON.

    Raises:
        TypeError: a value that is not plain.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray | np.generic) and value.dtype != object:
        arrays[name] = np.asarray(value)
        return {"array": name}
    if isinstance(value, list | tuple):
        items = [pack(v, arrays, f"{name}/{i}") for i, v in enumerate(value)]
        return {type(value).__name__: items}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {
            "dict": {
                key: pack(item, arrays, f"{name}/{key}")
                for key, item in value.items()
            }
        }
    raise TypeError(
        "The state of a callback must be made of numbers, text, arrays, and "
        "lists, tuples and dictionaries of these. Received: "
        f"{name} of type {type(value).__name__}."
    )


def unpack(packed: Any, arrays: dict) -> Any:
    """Returns the plain value that `pack` was given."""
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
