"""DELF pooling: features weighted by a learned attention score."""

from typing import Any

import keras
from keras import ops

from keras_gsp.layers.pooling.feature_pooling import WeightedPooling
from keras_gsp.ops.arguments import check_count
from keras_gsp.ops.masked_reductions import masked_mean
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class DELFPooling(WeightedPooling):
    r"""Weights each feature with a learned attention score (DELF).

    .. math:: \alpha_j = \log(1 + e^{w^\top [W f_j + b]_+ + c}), \qquad
        \text{pooled} = \frac{1}{n} \sum_j \alpha_j f_j

    The scores are not normalized: they may all be small in an image without
    salient features.

    Args:
        hidden_size: outputs of W, at least 1. Default 512.

    Input shape: (batch, height, width, channels) or (batch, tokens, channels).
    Output shape: (batch, channels). Mask and errors: see `FeaturePooling`.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    pooling = gsp.layers.DELFPooling(hidden_size=32)
    assert pooling(np.ones((2, 7, 7, 16), "float32")).shape == (2, 16)
    ```

    Reference:
        Large-Scale Image Retrieval with Attentive Deep Local Features, (1);
        normalization removes the factor between its sum and this mean. The
        paper trains the scores after the features; the comparison of the GSP
        paper trains both together.
    """

    def __init__(self, hidden_size: int = 512, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_count(hidden_size=hidden_size)
        self.hidden_size = hidden_size

    def create_weights(self, channels: int, input_shape: tuple) -> None:
        """Creates the two layers of the score."""
        self.create_dense("hidden", channels, self.hidden_size)
        self.create_dense("score", self.hidden_size, 1)

    def pool(self, features: Tensor, kept: Tensor) -> Tensor:
        """Returns the mean of the weighted features."""
        scores = self.shares(features, kept)[..., None]
        return masked_mean(scores * features, kept)

    def shares(self, features: Tensor, kept: Tensor | None) -> Tensor:
        """Returns the attention scores."""
        hidden = ops.relu(self.dense("hidden", features))
        return ops.softplus(self.dense("score", hidden)[..., 0])
