"""What a model is given: the same for another model that begins like it."""

from typing import Any

import keras


def input_of(model: keras.Model) -> Any:
    """Returns a model's input as it is called: a tensor, or a structure.

    `model.inputs` is a list even of one tensor; a model built from the list
    warns of every tensor that it is called with.

    Args:
        model: functional or sequential, built.
    """
    if isinstance(model, keras.Sequential):  # It has no `input`.
        return model.inputs[0]
    return model.input
