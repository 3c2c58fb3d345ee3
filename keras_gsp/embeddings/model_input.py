"""The input of a model, for building another model from it."""

from typing import Any

import keras


def input_of(model: keras.Model) -> Any:
    """Returns the input of a built model: a tensor, or a nest of tensors.

    `model.inputs` is always a list, and a model built from the list warns
    when it is called with a tensor.
    """
    if isinstance(model, keras.Sequential):  # It has no `input`.
        return model.inputs[0]
    return model.input
