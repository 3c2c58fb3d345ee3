"""Compute where a pooling looks: its weights, and each prototype's part."""

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
    pooling = pooling_layer(encoder)
    return _over_batches(encoder, pooling, images, pooling.pooling_weights)


def prototype_maps(encoder: Any, images: np.ndarray) -> np.ndarray:
    """Computes the part of each pooling weight that goes to each prototype.

    `(images, rows, columns, prototypes)`; the maps of an image sum to 1, and
    over rows and columns to its histogram.
    """
    pooling = pooling_layer(encoder)
    return _over_batches(
        encoder,
        pooling,
        images,
        lambda features: pooling.transport_plan(features) / pooling.ratio,
    )


def _over_batches(encoder, pooling, images, maps_of):
    import keras

    from keras_gsp.models.encoder import features_before

    features = features_before(encoder, pooling)
    maps = [
        maps_of(features(images[start : start + BATCH], training=False))
        for start in range(0, len(images), BATCH)
    ]
    return np.concatenate([keras.ops.convert_to_numpy(part) for part in maps])
