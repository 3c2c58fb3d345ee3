"""Embeddings of a data set, by whatever model makes them."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from keras_gsp.embeddings.labelled_batches import batches_of
from keras_gsp.embeddings.labelled_embeddings import checked_embeddings


def encoded_batches(
    encoder: Any, batches: Iterable[tuple[Any, Any]]
) -> Iterator[tuple[np.ndarray, Any]]:
    """Yields the embeddings and labels of a data set, batch by batch.

    Args:
        encoder: Keras model with one output (batch, size), or with a dict of
            outputs that holds `"embedding"`.
        batches: `LabelledBatches`, or other (images, labels) batches. Of
            `tf.data` they become arrays, which every backend takes.

    Yields:
        (batch, size) finite embeddings and (batch,) labels, NumPy arrays.

    Raises:
        TypeError: an encoder without one embedding.
        ValueError: embeddings of another rank, NaN or infinity.
    """
    for images, labels in batches_of(batches, batch_size=64):
        embeddings = embedding_of(encoder.predict_on_batch(images))
        # Under tf.distribute every replica answers the whole batch.
        yield checked_embeddings(embeddings[: len(labels)]), labels


def encoded(
    encoder: Any, batches: Iterable[tuple[Any, Any]]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the embeddings and labels of a whole data set.

    Args:
        encoder: as for `encoded_batches`.
        batches: as for `encoded_batches`.

    Returns:
        (items, size) embeddings and (items,) labels, NumPy arrays.
    """
    embeddings, labels = zip(*encoded_batches(encoder, batches), strict=True)
    return np.concatenate(embeddings), np.concatenate(labels)


def embedding_of(outputs: Any) -> Any:
    """Returns the one embedding among an encoder's outputs.

    Args:
        outputs: tensor or array (batch, size), or its shape, or a dict of
            outputs that holds one under `"embedding"`.

    Returns:
        (batch, size), or that shape.

    Raises:
        TypeError: several outputs without the name `"embedding"`.
        ValueError: another rank.

    Example:

    ```python
    outputs = {"embedding": np.ones((2, 8)), "histogram": np.ones((2, 4))}
    assert gsp.models.embedding_of(outputs).shape == (2, 8)
    ```
    """
    if isinstance(outputs, dict) and "embedding" in outputs:
        outputs = outputs["embedding"]
    is_shape = isinstance(outputs, tuple | list) and all(
        size is None or isinstance(size, int) for size in outputs
    )
    if isinstance(outputs, dict | list | tuple) and not is_shape:
        received = f"{len(outputs)} outputs"
        if isinstance(outputs, dict):
            received = f"a dict with keys {sorted(outputs)}"
        raise TypeError(
            "The encoder must return one tensor, or a dict with the key "
            f'"embedding". Received: {received}.'
        )
    shape = tuple(outputs if is_shape else outputs.shape)
    if len(shape) != 2:
        raise ValueError(
            "The encoder must return embeddings of shape (batch, size). "
            f"Received: shape {shape}."
        )
    return outputs
