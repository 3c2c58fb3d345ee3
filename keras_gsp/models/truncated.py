"""Encoders truncated to the first coordinates of their embedding."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_gsp._checks import check_integer
from keras_gsp._compat import operation_of
from keras_gsp._encoding import embedding_of, embedding_tensor, input_of
from keras_gsp.layers.embedding_normalization import EmbeddingNormalization
from keras_gsp.ops.normalization import normalize


def truncate_encoder(encoder: keras.Model, size: int | None) -> keras.Model:
    """Returns an encoder to the first coordinates, normalized again.

    An encoder trained with `gsp.losses.MatryoshkaLoss` loses little, and so
    does one that ends in `Whitening` without labels; other encoders do not
    order coordinates by importance.
    Weights are shared. Indexes and exports call this with `truncate_to`.

    Args:
        encoder: functional or sequential model to embeddings, or to a dict
            with `"embedding"`.
        size: coordinates to keep, in [1, embedding_size]. `None`: all.

    Returns:
        A model to embeddings (batch, size); `encoder` itself for `None`.

    Raises:
        ValueError: a size outside its range.

    Example:

    ```python
    encoder = keras.Sequential([keras.Input((8,)), keras.layers.Dense(6)])
    small = gsp.models.truncate_encoder(encoder, 2)
    assert small(np.ones((3, 8))).shape == (3, 2)
    ```
    """
    if size is None:
        return encoder
    check_integer(least=1, truncate_to=size)
    embedding = embedding_tensor(encoder)
    if size > embedding.shape[-1]:
        raise ValueError(
            "`truncate_to` must be at most the embedding size, "
            f"{embedding.shape[-1]}. Received: truncate_to={size}."
        )
    inputs = input_of(encoder)
    if type(encoder).__name__ not in ("Functional", "Sequential"):
        # A subclass, as `TwoLooks`, can only be saved as a whole.
        inputs = keras.tree.map_structure(
            lambda x: keras.Input(batch_shape=x.shape, dtype=x.dtype), inputs
        )
        embedding = embedding_of(encoder(inputs))
    last = EmbeddingNormalization(
        normalization_of(encoder), name="normalized_part", dtype=embedding.dtype
    )
    return keras.Model(inputs, last(embedding[:, :size]), name=encoder.name)


def normalization_of(encoder: keras.Model) -> Any:
    """Returns how an encoder normalizes its embeddings; `"l2"` if unknown."""
    last = encoder.built and operation_of(embedding_tensor(encoder))
    return getattr(last, "normalization", "l2")


def truncated(embeddings: Any, size: int, normalization: Any) -> np.ndarray:
    """Returns the first coordinates of embeddings, normalized again."""
    return ops.convert_to_numpy(normalize(embeddings[:, :size], normalization))
