"""Common part of all pooling layers: features in, one vector per image out."""

import math
from typing import Any

from keras import ops

from keras_gsp._checks import known_to_differ
from keras_gsp._configured import ConfiguredLayer
from keras_gsp._tensor import Tensor
from keras_gsp.ops.masked_reductions import (
    kept_from_mask,
    zero_where_empty,
    zero_where_masked,
)
from keras_gsp.ops.precision import at_least_float32


class FeaturePooling(ConfiguredLayer):
    """Base class of pooling layers.

    A subclass defines `pool(features, kept)` and, where needed,
    `create_weights(channels, input_shape)`, `output_size(channels)` and
    `check_size(input_shape)`. Its constructor must work without arguments: the
    commands of `training` find every subclass that `gsp.layers` exports.

    This class checks shapes and masks, computes in float32 at least and casts
    back, sets masked tokens to zero, and pools an all-masked row to zeros.

    Call arguments:
        features: (batch, height, width, channels) or (batch, tokens,
            channels); all sizes but the channels may be unknown.
        mask: optional boolean (batch, tokens), for tokens only. A masked
            token counts as absent.

    Output shape: (batch, channels), unless a subclass says otherwise.

    Raises:
        ValueError: an argument outside its range, features of another rank,
            unknown channels, a mask on a feature map or of another shape.
    """

    # Whether it is defined on the output of the last ReLU: encoders then
    # project the pooled vector, not the features.
    pools_first: bool = False
    # Whether `pool` receives feature maps as maps, not as lists.
    takes_maps = False
    # Whether `pool` also receives `mask`: `kept` is all ones in an all-masked
    # row, which must not enter the statistics of a batch.
    takes_mask = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def build(self, input_shape: tuple) -> None:
        """Creates the weights; the channels must be known."""
        channels = known_channels(input_shape)
        self.check_size(input_shape)
        self.create_weights(channels, input_shape)

    def call(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pools features; see the class."""
        features, kept = self._prepared(features, mask)
        options = {"mask": mask} if self.takes_mask else {}
        pooled = zero_where_empty(self.pool(features, kept, **options), mask)
        return ops.cast(pooled, self.compute_dtype)

    def pool(self, features: Tensor, kept: Tensor | None) -> Tensor:
        """Pools a list of features to (batch, size).

        Args:
            features: (batch, num_features, channels), float32 or float64; an
                unflattened map with `takes_maps`.
            kept: (batch, num_features), 1 for features that count and 0 for
                others, at least one 1 in a row; `None` where all count.
        """
        raise NotImplementedError

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        """Returns (batch, size)."""
        return input_shape[0], self.output_size(known_channels(input_shape))

    def compute_mask(
        self, inputs: Tensor, mask: Tensor | None = None
    ) -> tuple | None:
        """Returns no mask: the output has no tokens."""
        return None

    def check_size(self, input_shape: tuple) -> None:
        """Raises `ValueError` for too few features, where that is known."""

    def create_weights(self, channels: int, input_shape: tuple) -> None:
        """Creates the weights, if any."""

    def output_size(self, channels: int) -> int:
        """Returns the size of a pooled vector."""
        return channels

    def create_dense(
        self,
        name: str,
        inputs: int,
        outputs: int,
        *,
        use_bias: bool = True,
        initializer: str = "glorot_uniform",
    ) -> None:
        """Adds the weights `NAME_kernel` and `NAME_bias` of a linear map."""
        kernel, bias = f"{name}_kernel", f"{name}_bias"
        shape = (inputs, outputs)
        weight = self.full_precision_weight(kernel, shape, initializer)
        setattr(self, kernel, weight)
        if use_bias:
            weight = self.full_precision_weight(bias, (outputs,), "zeros")
            setattr(self, bias, weight)

    def dense(self, name: str, features: Tensor) -> Tensor:
        """Applies the linear map of `create_dense` to (..., inputs)."""
        mapped = ops.matmul(features, getattr(self, f"{name}_kernel"))
        bias = getattr(self, f"{name}_bias", None)
        return mapped if bias is None else mapped + bias

    def as_features(self, features: Tensor) -> Tensor:
        """Returns features as a tensor, for which the layer is built."""
        features = ops.convert_to_tensor(features)
        if not self.built:
            self.build(features.shape)
        return features

    def _prepared(self, features, mask):
        """Features in float32 at least, zero where masked, and `kept`."""
        check_mask(features, mask)
        features = zero_where_masked(at_least_float32(features), mask)
        if not self.takes_maps:
            features = flat_features(features)
        return features, kept_from_mask(mask, features.dtype)


class WeightedPooling(FeaturePooling):
    """Base class of poolings that give each feature a weight.

    A subclass also defines `shares(features, kept)`, which receives what
    `pool` receives.
    """

    def shares(self, features: Tensor, kept: Tensor | None) -> Tensor:
        """Returns what each feature counts, at least 0, to any scale.

        (batch, num_features), or (batch, num_features, num_queries).
        """
        raise NotImplementedError

    def pooling_weights(
        self, features: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Returns the pooling weights of a call as a map.

        (batch, height, width) or (batch, tokens), with a last axis of queries
        where a pooling has several. Each map sums to 1: equal weights where
        all are zero. An all-masked row has none, and sums to 0.
        """
        features = self.as_features(features)
        full, kept = self._prepared(features, mask)
        shares = self.shares(full, kept)
        real = ops.ones_like(shares)
        if kept is not None:
            extra = [1] * (len(shares.shape) - 2)
            real = real * ops.reshape(kept, (*ops.shape(kept), *extra))
        total = ops.sum(shares * real, axis=1, keepdims=True)
        shares = real * ops.where(total == 0.0, real, shares)
        weights = shares / ops.sum(shares, axis=1, keepdims=True)
        weights = zero_where_empty(weights, mask)
        sizes = (*spatial_shape(features), *weights.shape[2:])
        return ops.reshape(weights, (-1, *sizes))


def spatial_shape(features: Tensor | tuple) -> tuple:
    """Returns the sizes between batch and channels of a tensor or a shape.

    An unknown size is `None` for a shape, a scalar tensor for a tensor.
    Raises `ValueError` for a rank other than 3 or 4.
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
    return None if None in sizes else math.prod(sizes)


def known_channels(input_shape: tuple) -> int:
    """Returns the channels of a shape; raises `ValueError` where unknown."""
    spatial_shape(input_shape)
    if input_shape[-1] is None:
        raise ValueError(
            "The channels of the features must be known. "
            f"Received: input_shape={tuple(input_shape)}."
        )
    return input_shape[-1]


def check_mask(features: Tensor, mask: Tensor | None) -> None:
    """Raises `ValueError` for a mask that does not match the features."""
    if mask is None:
        return
    shape = tuple(ops.convert_to_tensor(mask).shape)
    if len(features.shape) != 3 or known_to_differ(features.shape[:2], shape):
        raise ValueError(
            "A `mask` must have one entry per token, (batch, tokens); a "
            "feature map takes none. Received: features of shape "
            f"{tuple(features.shape)}, mask of shape {shape}."
        )
