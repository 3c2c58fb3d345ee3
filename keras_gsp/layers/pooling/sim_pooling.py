"""SimPool: attention with the average feature as the query."""

from typing import Any

import keras
from keras import ops

from keras_gsp.layers.pooling.feature_pooling import WeightedPooling
from keras_gsp.ops.masked_reductions import (
    check_power,
    masked_mean,
    masked_softmax,
)
from keras_gsp.ops.precision import full_matmul
from keras_gsp.ops.tensor import Tensor

# Lower bound of the values: the slope of a power at 0 may be infinite.
_SMALLEST_VALUE = 1e-6


@keras.saving.register_keras_serializable(package="keras_gsp")
class SimPooling(WeightedPooling):
    r"""Pools by attention whose query is the average feature (SimPool).

    .. math:: x_j = N(f_j), \quad
        a_j = \text{softmax}_j \frac{(W_q \bar f) \cdot (W_k x_j)}{\sqrt d},
        \quad v_j = x_j - \min_{l,k} x_{lk}, \quad
        \text{pooled} = \Big( \sum_j a_j v_j^p \Big)^{1/p}

    with :math:`\bar f` the average of the features, N layer normalization
    with learned scale and offset, and the minimum over the whole image.

    Args:
        power: exponent p, at least 1. Default 1.25, the paper's for vision
            transformers; 2 for convolutional networks.

    Input shape: (batch, height, width, channels) or (batch, tokens, channels).
    Output shape: (batch, channels). Mask and errors: see `FeaturePooling`.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    pooling = gsp.layers.SimPooling()
    features = np.random.default_rng(0).normal(size=(2, 196, 16))
    assert pooling(features).shape == (2, 16)
    ```

    Reference:
        Keep It SimPooling: Who Said Supervised Transformers Suffer from
        Attention Deficit?, algorithm 1. Values are clipped below at 1e-6, as
        the inverse power has an infinite slope at 0.
    """

    def __init__(self, power: float = 1.25, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.power = check_power(power)

    def create_weights(self, channels: int, input_shape: tuple) -> None:
        """Creates query, key and the normalization's scale and offset."""
        for name in ("query", "key"):
            self.create_dense(name, channels, channels, use_bias=False)
        self.normalization = keras.layers.LayerNormalization(
            epsilon=1e-6, name="normalization", dtype=self.full_precision
        )
        self.normalization.build((None, None, channels))

    def pool(self, features: Tensor, kept: Tensor) -> Tensor:
        """Returns the power mean of the attended values."""
        normalized = self.normalization(features)
        shares = self._attention(features, normalized, kept)
        real = normalized
        if kept is not None:
            real = ops.where(kept[..., None] > 0.0, normalized, float("inf"))
        lowest = ops.min(real, axis=(1, 2), keepdims=True)
        values = ops.maximum(normalized - lowest, _SMALLEST_VALUE)
        powers = shares[..., None] * ops.power(values, self.power)
        return ops.power(ops.sum(powers, axis=1), 1.0 / self.power)

    def shares(self, features: Tensor, kept: Tensor | None) -> Tensor:
        """Returns the attention weights."""
        return self._attention(features, self.normalization(features), kept)

    def _attention(self, features, normalized, kept):
        query = self.dense("query", masked_mean(features, kept))
        keys = self.dense("key", normalized)
        scores = full_matmul(keys, query[..., None])[..., 0]
        return masked_softmax(scores * keys.shape[-1] ** -0.5, kept)
