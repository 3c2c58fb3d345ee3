"""The input and the embedding of a model, to build another model from."""

from typing import Any

import keras

from keras_gsp.embeddings.labeled_batches import embedding_of


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
