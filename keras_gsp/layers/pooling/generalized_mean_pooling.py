"""Generalized-mean pooling (GeM)."""

from typing import Any

import keras

from keras_gsp.layers.pooling.feature_pooling import FeaturePooling
from keras_gsp.layers.pooling.learned_power import (
    add_power_weight,
    checked_power,
    power_of,
)
from keras_gsp.ops.masked_reductions import generalized_mean
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class GeneralizedMeanPooling(FeaturePooling):
    r"""Pools each channel by its power mean (GeM).

    .. math:: \text{pooled}_k =
        \Big( \frac{1}{n} \sum_j \max(f_{jk}, 10^{-6})^p \Big)^{1/p}

    For nonnegative features, such as those after a ReLU:
    `build_encoder(..., pool_first=True)` pools these and projects afterwards.

    Args:
        power: exponent p, at least 1. Default 3.0. 1 is average pooling of
            the positive part; the limit at infinity is maximum pooling.
        learn_power: whether to learn the exponent, one for all channels, by a
            weight w (`log_power_excess`) with :math:`p = 1 + e^w` that starts
            at `power` (above 1). Default `False`.

    Input shape: (batch, height, width, channels) or (batch, tokens, channels).
    Output shape: (batch, channels). Mask and errors: see `FeaturePooling`.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    pooling = gsp.layers.GeneralizedMeanPooling(power=3.0)
    assert pooling(np.ones((2, 7, 7, 16), "float32")).shape == (2, 16)
    ```

    Reference:
        Fine-tuning CNN Image Retrieval with No Human Annotation, (3), where
        p itself is the weight and may fall below 1.
    """

    def __init__(
        self, power: float = 3.0, *, learn_power: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.power = checked_power(power, learn_power)
        self.learn_power = learn_power

    def create_weights(self, channels: int, input_shape: tuple) -> None:
        """Creates the weight of the exponent, if it is learned."""
        add_power_weight(self)

    def pool(self, features: Tensor, kept: Tensor) -> Tensor:
        """Returns the power mean."""
        return generalized_mean(features, power_of(self), kept=kept)
