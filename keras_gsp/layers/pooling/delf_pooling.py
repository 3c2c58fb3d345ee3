"""DELF pooling: features weighted by a learned attention score."""

from typing import Any

import keras
from keras import ops

from keras_gsp.layers.pooling.feature_pooling import FeaturePooling
from keras_gsp.ops.arguments import check_count
from keras_gsp.ops.masked_reductions import masked_mean
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class DELFPooling(FeaturePooling):
    r"""Weights each feature with a learned attention score (DELF).

    .. math:: \alpha_j = \log(1 + e^{w^\top [W f_j + b]_+ + c}), \qquad
        \text{pooled} = \frac{1}{n} \sum_j \alpha_j f_j

    The scores are not normalized: they may all be small in an image without
    salient features.

    Args:
        hidden_size: outputs of W, at least 1. Default 512.
        **kwargs: `name`, `dtype` and other arguments of a Keras layer.

    Call arguments:
        features: (batch, height, width, channels) or (batch, tokens,
            channels).
        mask: optional boolean (batch, tokens), for tokens only.

    Output shape:
        (batch, channels).

    Raises:
        ValueError: an argument outside its range, features of another rank,
            unknown channels, a mask on a feature map.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    pooling = gsp.layers.DELFPooling(hidden_size=32)
    assert pooling(np.ones((2, 7, 7, 16), "float32")).shape == (2, 16)
    ```

    Reference:
        Large-Scale Image Retrieval with Attentive Deep Local Features, (1),
        whose sum over features differs by a factor that normalization
        removes. The paper trains the scores after the features; the
        comparison of the GSP paper, like this layer, trains both together.
    """

    def __init__(self, hidden_size: int = 512, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_count(hidden_size=hidden_size)
        self.hidden_size = hidden_size

    def create_weights(self, channels: int, input_shape: tuple) -> None:
        """Creates the two layers of the score."""
        self.hidden_kernel = self.full_precision_weight(
            "hidden_kernel", (channels, self.hidden_size)
        )
        self.hidden_bias = self.full_precision_weight(
            "hidden_bias", (self.hidden_size,), "zeros"
        )
        self.score_kernel = self.full_precision_weight(
            "score_kernel", (self.hidden_size, 1)
        )
        self.score_bias = self.full_precision_weight(
            "score_bias", (1,), "zeros"
        )

    def pool(self, features: Tensor, kept: Tensor) -> Tensor:
        """Returns the mean of the weighted features."""
        hidden = ops.relu(
            ops.matmul(features, self.hidden_kernel) + self.hidden_bias
        )
        scores = ops.matmul(hidden, self.score_kernel) + self.score_bias
        return masked_mean(ops.softplus(scores) * features, kept)
