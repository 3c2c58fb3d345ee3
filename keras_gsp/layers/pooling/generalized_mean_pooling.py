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
    r"""Pools each channel by its power mean, between average and maximum.

    .. math:: \text{pooled}_k =
        \Big( \frac{1}{n} \sum_j \max(f_{jk}, 10^{-6})^p \Big)^{1/p}

    It is made for features that are not negative, as a network's last
    activation gives them: `build_encoder(..., pool_first=True)` pools these
    and projects afterwards.

    Args:
        power: exponent p, at least 1. Default 3.0; 1 is average pooling of
            the positive part, infinity would be the maximum.
        learn_power: whether the exponent is a weight, one for all channels:
            `log_power_excess`, w of :math:`p = 1 + e^w`, which starts at
            `power` (above 1). Default `False`.
        **kwargs: `name`, `dtype` and other arguments of a Keras layer.

    Call arguments:
        features: see input shape.
        mask: optional boolean (batch, tokens), with tokens only.

    Input shape:
        (batch, height, width, channels) or (batch, tokens, channels).

    Output shape:
        (batch, channels).

    Raises:
        ValueError: a power below 1, or of 1 if learned, features of another
            rank, unknown channels, a mask on a feature map.

    Example:

    ```python
    pooling = gsp.layers.GeneralizedMeanPooling(power=3.0)
    assert pooling(np.ones((2, 7, 7, 16), "float32")).shape == (2, 16)
    ```

    Reference:
        Fine-tuning CNN Image Retrieval with No Human Annotation, (3). There
        p itself is the weight, and may fall below 1.
    """

    def __init__(
        self, power: float = 3.0, *, learn_power: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.power = checked_power(power, learn_power)
        self.learn_power = learn_power

    def create_weights(self, channels: int, input_shape: tuple) -> None:
        """Creates the exponent's weight, if it is learned."""
        add_power_weight(self)

    def pool(self, features: Tensor, kept: Tensor) -> Tensor:
        """Returns the power mean."""
        return generalized_mean(features, power_of(self), kept=kept)

    def get_config(self) -> dict:
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "power": self.power,
            "learn_power": self.learn_power,
        }
