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


def full_weight(weights: np.ndarray, ratio: float | None) -> float:
    """Returns the weight of a feature that is pooled completely.

    GSP, which moves a fraction `ratio` of n features, gives no feature more
    than `1 / (n * ratio)`. Without a ratio it is the largest of `weights`,
    `(images, rows, columns)`.
    """
    if ratio is None:
        return float(weights.max())
    return 1 / (weights[0].size * ratio)
