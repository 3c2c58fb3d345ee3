"""Feature maps and token sequences, seen as one list of features."""

from keras import ops


def spatial_shape(features):
    """Returns the sizes between batch and channels, checking the rank.

    Args:
        features: a tensor or a shape, (batch, height, width, channels) or
            (batch, tokens, channels).

    Returns:
        Tuple of one or two sizes; `None` where a shape does not know, a
        scalar tensor where a tensor does not.

    Raises:
        ValueError: another rank.
    """
    shape = tuple(getattr(features, "shape", features))
    if len(shape) not in (3, 4):
        raise ValueError(
            "Features must have shape (batch, height, width, channels) or "
            f"(batch, tokens, channels). Received: shape {shape}."
        )
    if hasattr(features, "shape"):
        return tuple(ops.shape(features)[1:-1])
    return shape[1:-1]


def flat_features(features):
    """Returns features as (batch, num_features, channels)."""
    spatial_shape(features)
    if len(features.shape) == 3:
        return features
    shape = ops.shape(features)
    return ops.reshape(features, (-1, shape[1] * shape[2], shape[3]))
