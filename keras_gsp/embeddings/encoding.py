"""Embeddings of a data set, by whatever model makes them."""

import numpy as np

from keras_gsp.embeddings.labelled_embeddings import checked_embeddings


def encoded_batches(encoder, batches):
    """Yields the embeddings and labels of a data set, batch by batch.

    Args:
        encoder: Keras model with one output (batch, size), or with a dict of
            outputs that holds `"embedding"`.
        batches: `LabelledBatches`, or other (images, labels) batches.

    Yields:
        (batch, size) finite embeddings and (batch,) labels, NumPy arrays.

    Raises:
        TypeError: an encoder without one embedding.
        ValueError: embeddings of another rank, NaN or infinity.
    """
    for images, labels in batches:
        embeddings = embedding_output(encoder.predict_on_batch(images))
        # Under tf.distribute every replica answers the whole batch.
        yield checked_embeddings(embeddings[: len(labels)]), labels


def encoded(encoder, batches):
    """Returns the embeddings and labels of a whole data set.

    Args:
        encoder: as for `encoded_batches`.
        batches: as for `encoded_batches`.

    Returns:
        (items, size) embeddings and (items,) labels, NumPy arrays.
    """
    embeddings, labels = zip(*encoded_batches(encoder, batches), strict=True)
    return np.concatenate(embeddings), np.concatenate(labels)


def embedding_output(outputs):
    """Returns the one embedding among an encoder's outputs.

    Args:
        outputs: tensor or array (batch, size), or a dict of outputs that
            holds one under `"embedding"`.

    Returns:
        (batch, size).

    Raises:
        TypeError: several outputs without the name `"embedding"`.
        ValueError: another rank.
    """
    if isinstance(outputs, dict) and "embedding" in outputs:
        outputs = outputs["embedding"]
    if isinstance(outputs, dict | list | tuple):
        received = f"{len(outputs)} outputs"
        if isinstance(outputs, dict):
            received = f"a dict with keys {sorted(outputs)}"
        raise TypeError(
            "The encoder must return one tensor, or a dict with the key "
            f'"embedding". Received: {received}.'
        )
    if len(outputs.shape) != 2:
        raise ValueError(
            "The encoder must return embeddings of shape (batch, size). "
            f"Received: shape {tuple(outputs.shape)}."
        )
    return outputs
