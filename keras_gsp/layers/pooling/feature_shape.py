"""Feature maps and token sequences, seen as one list of features."""

from keras import ops

from keras_gsp.ops.tensor import Tensor


def spatial_shape(features: Tensor) -> tuple:
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
    shape = tuple(features.shape if hasattr(features, "shape") else features)
    if len(shape) not in (3, 4):
        raise ValueError(
            "Features must have shape (batch, height, width, channels) or "
            f"(batch, tokens, channels). Received: shape {shape}."
        )
    if hasattr(features, "shape"):
        return tuple(ops.shape(features)[1:-1])
    return shape[1:-1]


def flat_features(features: Tensor) -> Tensor:
    """Returns features as (batch, num_features, channels)."""
    spatial_shape(features)
    if len(features.shape) == 3:
        return features
    shape = ops.shape(features)
    return ops.reshape(features, (-1, shape[1] * shape[2], shape[3]))


def num_features(input_shape: tuple) -> int | None:
    """Returns the number of features of a shape, `None` where unknown."""
    sizes = spatial_shape(input_shape)
    if None in sizes:
        return None
    return sizes[0] if len(sizes) == 1 else sizes[0] * sizes[1]


def known_channels(input_shape: tuple) -> int:
    """Returns the channels of a shape, checking that they are known.

    Raises:
        ValueError: another rank, or channels of `None`.
    """
    spatial_shape(input_shape)
    if input_shape[-1] is None:
        raise ValueError(
            "The channels of the features must be known. "
            f"Received: input_shape={tuple(input_shape)}."
        )
    return input_shape[-1]


def check_mask(features: Tensor, mask: Tensor) -> None:
    """Raises `ValueError` for a mask that does not go with the features."""
    if mask is None:
        return
    shape = tuple(ops.convert_to_tensor(mask).shape)
    if len(features.shape) != 3 or len(shape) != 2:
        raise ValueError(
            "A `mask` (batch, tokens) goes with tokens (batch, tokens, "
            "channels), not with a feature map. Received: features of shape "
            f"{tuple(features.shape)}, mask of shape {shape}."
        )
