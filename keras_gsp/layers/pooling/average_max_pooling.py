"""Sum of average and maximum pooling (GAP + GMP)."""

from typing import Any

import keras

from keras_gsp.layers.pooling.feature_pooling import FeaturePooling
from keras_gsp.ops.arguments import check_count
from keras_gsp.ops.masked_reductions import masked_max, masked_mean
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class AverageMaxPooling(FeaturePooling):
    r"""Pools each channel to the sum of its average and its maximum.

    .. math:: \text{pooled}_k = \frac{1}{n} \sum_j f_{jk} + \max_j f_{jk}

    Args:
        projection_size: output size of two linear maps without bias, one for
            the average and one for the maximum, applied before the sum.
            Default `None`: the plain sum.

    Input shape: (batch, height, width, channels) or (batch, tokens, channels).
    Output shape: (batch, channels), or (batch, projection_size).
    Mask and errors: see `FeaturePooling`.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    pooling = gsp.layers.AverageMaxPooling()
    assert pooling(np.ones((2, 7, 7, 16), "float32")).shape == (2, 16)
    ```

    Reference:
        "GMP+GAP" of Generalized Sum Pooling for Metric Learning, and Proxy
        Anchor Loss for Deep Metric Learning. Both project the sum (here:
        `projection_size=None`, followed by a dense layer).
    """

    def __init__(
        self, *, projection_size: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        check_count(projection_size=projection_size, is_optional=True)
        self.projection_size = projection_size

    def create_weights(self, channels: int, input_shape: tuple) -> None:
        """Creates the two projections, if any."""
        if self.projection_size is not None:
            size = self.projection_size
            self.create_dense("average", channels, size, use_bias=False)
            self.create_dense("max", channels, size, use_bias=False)

    def pool(self, features: Tensor, kept: Tensor) -> Tensor:
        """Returns average + maximum."""
        average = masked_mean(features, kept)
        largest = masked_max(features, kept)
        if self.projection_size is None:
            return average + largest
        return self.dense("average", average) + self.dense("max", largest)

    def output_size(self, channels: int) -> int:
        """Returns `projection_size`, or the channels."""
        return self.projection_size or channels
