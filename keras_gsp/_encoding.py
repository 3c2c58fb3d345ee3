"""The input and the embedding of an encoder."""

from typing import Any

import keras


def embedding_of(outputs: Any) -> Any:
    """Returns the embedding among an encoder's outputs, or its shape.

    Raises `TypeError` for several outputs without the name `"embedding"`,
    `ValueError` for another rank than (batch, size).
    """
    if isinstance(outputs, dict) and "embedding" in outputs:
        outputs = outputs["embedding"]
    is_shape = isinstance(outputs, tuple | list) and all(
        size is None or isinstance(size, int) for size in outputs
    )
    if isinstance(outputs, dict | list | tuple) and not is_shape:
        raise TypeError(
            "The encoder must return one tensor, or a dict with the key "
            f'"embedding". Received: {structure_of(outputs)}.'
        )
    shape = tuple(outputs if is_shape else outputs.shape)
    if len(shape) != 2:
        raise ValueError(
            "The encoder must return embeddings of shape (batch, size). "
            f"Received: shape {shape}."
        )
    return outputs


def input_of(model: keras.Model) -> Any:
    """Returns the input of a built model: a tensor, or a nest of several.

    `model.inputs` is always a list, and a model built from the list warns
    when it is called with a tensor.
    """
    if isinstance(model, keras.Sequential):  # It has no `input`.
        return model.inputs[0]
    found = model.input
    is_alone = isinstance(found, list | tuple) and len(found) == 1
    return found[0] if is_alone else found


def embedding_tensor(encoder: keras.Model) -> Any:
    """Returns the symbolic embedding of a built functional encoder."""
    is_sequential = isinstance(encoder, keras.Sequential)  # It has no `output`.
    outputs = encoder.outputs if is_sequential else encoder.output
    if isinstance(outputs, list | tuple) and len(outputs) == 1:
        outputs = outputs[0]
    return embedding_of(outputs)


def structure_of(value: Any) -> str:
    """Names the structure of what should have been a tensor or a batch."""
    if isinstance(value, dict):
        return f"a dict with keys {sorted(value)}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return type(value).__name__
