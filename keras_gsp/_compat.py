"""The private names of Keras that this package needs.

Keras has no public way to these (3.15).
"""

from collections.abc import Iterator
from typing import Any

import keras


def layers_at_any_depth(
    model: Any, *, include_self: bool = True
) -> Iterator[keras.layers.Layer]:
    """Yields the layers of a model, those inside of layers too.

    `model.layers` ends at the first depth, and misses the layers that another
    layer keeps in its attributes. Yields nothing for what is no layer.
    """
    if isinstance(model, keras.layers.Layer):
        yield from model._flatten_layers(include_self=include_self)


def operation_of(tensor: keras.KerasTensor) -> keras.Operation:
    """Returns the layer or operation that a symbolic tensor comes from."""
    return tensor._keras_history.operation


def mask_of(tensor: Any) -> Any:
    """Returns the mask that travels with a tensor, or `None`."""
    return getattr(tensor, "_keras_mask", None)


def set_initial_epoch(model: keras.Model, epoch: int) -> None:
    """Lets the next epoch of a running `fit` be this one, from 0.

    `keras.callbacks.BackupAndRestore` resumes so.
    """
    model._initial_epoch = epoch


def compile_by_xla(model: keras.Model) -> None:
    """Compiles a model's steps though a layer of it asks not to."""
    model._jit_compile = True
