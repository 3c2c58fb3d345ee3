"""What all poolings share: a map or tokens in, checked, one vector out."""

from typing import Any

import keras
from keras import ops

from keras_gsp.ops.masked_reductions import kept_from_mask, zero_where_empty
from keras_gsp.ops.precision import at_least_float32
from keras_gsp.ops.tensor import Tensor


class FeaturePooling(keras.layers.Layer):
    """A pooling is its weights and one method, `pool`.

    The shape and the mask are checked here, half precision is turned into
    float32 and back, what a masked token holds is set to zero, and a row
    whose tokens are all masked is pooled to zeros.

    A subclass defines `pool(features, kept)` and, where it has weights,
    `create_weights(channels, input_shape)`; where the output has another
    size than the channels, `output_size(channels)`.
    """

    # Whether `pool` takes feature maps as they are, not as lists.
    takes_maps = False
    # Whether `pool` is also told `mask`, as the call was: `kept` is ones in a
    # row that keeps nothing, which is no part of a batch's statistics.
    takes_mask = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def build(self, input_shape: tuple) -> None:
        """Creates the weights; the channels have to be known."""
        channels = known_channels(input_shape)
        self.check_size(input_shape)
        self.create_weights(channels, input_shape)

    def call(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pools features; see the class."""
        check_mask(features, mask)
        pooled_type = self.compute_dtype
        features = zero_where_masked(at_least_float32(features), mask)
        if not self.takes_maps:
            features = flat_features(features)
        kept = kept_from_mask(mask, features.dtype)
        told = {"mask": mask} if self.takes_mask else {}
        pooled = zero_where_empty(self.pool(features, kept, **told), mask)
        return ops.cast(pooled, pooled_type)

    def pool(self, features: Tensor, kept: Tensor) -> Tensor:
        """Pools a list of features.

        Args:
            features: (batch, num_features, channels), float32 or float64; a
                map as it is where `takes_maps`.
            kept: (batch, num_features), 1 for features that count and 0 for
                others, at least one in a row; `None` where all count.

        Returns:
            (batch, size).
        """
        raise NotImplementedError(f"{type(self).__name__} has no `pool`.")

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        """Returns (batch, size)."""
        return input_shape[0], self.output_size(known_channels(input_shape))

    def compute_mask(self, inputs: Tensor, mask: Tensor | None = None) -> None:
        """Returns no mask: the tokens are gone."""
        return None

    def check_size(self, input_shape: tuple) -> None:
        """Raises `ValueError` for too few features, where that is known."""

    def create_weights(self, channels: int, input_shape: tuple) -> None:
        """Creates the weights, if any."""

    def output_size(self, channels: int) -> int:
        """Returns the size of a pooled vector."""
        return channels

    def full_precision_weight(
        self,
        name: str,
        shape: tuple,
        initializer: Any = "glorot_uniform",
        regularizer: Any = None,
    ) -> Any:
        """Adds a weight that no policy, mixed or half, takes below float32."""
        return self.add_weight(
            name=name,
            shape=shape,
            initializer=initializer,
            regularizer=regularizer,
            dtype=self.full_precision,
            autocast=False,
        )

    @property
    def full_precision(self) -> str:
        """float64 where the layer computes in it, float32 otherwise."""
        return "float64" if self.compute_dtype == "float64" else "float32"


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
    if known_to_differ(features.shape[:2], shape):
        raise ValueError(
            "A `mask` must say of each token whether it counts, (batch, "
            "tokens). Received: features of shape "
            f"{tuple(features.shape)}, mask of shape {shape}."
        )


def known_to_differ(one: tuple, other: tuple) -> bool:
    """Whether two shapes differ in their rank or in a size both know."""
    return len(one) != len(other) or any(
        None not in pair and pair[0] != pair[1]
        for pair in zip(one, other, strict=True)
    )


def zero_where_masked(features: Tensor, mask: Tensor | None) -> Tensor:
    """Returns (batch, tokens, channels) with zeros where a token is masked.

    What it holds may be NaN, and zero times NaN is NaN: multiplied by its
    weight it would reach what is pooled, and every gradient.
    """
    if mask is None:
        return features
    is_kept = ops.cast(mask, "bool")[..., None]
    return ops.where(is_kept, features, ops.zeros_like(features))
