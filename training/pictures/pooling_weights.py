"""Compute where a pooling looks."""

from typing import Any

import numpy as np

BATCH = 200
"""Images at once."""


def pooling_layer(encoder: Any) -> Any:
    """Returns the encoder's last layer that has pooling weights, or None."""
    for layer in reversed(getattr(encoder, "layers", [])):
        if hasattr(layer, "pooling_weights"):
            return layer
    return None


def pooling_weights(encoder: Any, images: np.ndarray) -> np.ndarray:
    """Computes the weights of an encoder's pooling over uint8 images.

    `(images, rows, columns)`, or `(images, tokens)` for tokens without a
    grid; each map sums to 1.
    """
    import keras

    from keras_gsp.models.encoder import features_before

    pooling = pooling_layer(encoder)
    features = features_before(encoder, pooling)
    maps = [
        pooling.pooling_weights(
            features(images[start : start + BATCH], training=False)
        )
        for start in range(0, len(images), BATCH)
    ]
    return np.concatenate([keras.ops.convert_to_numpy(part) for part in maps])
