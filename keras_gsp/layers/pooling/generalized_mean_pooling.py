"""Generalised-mean pooling (GeM)."""

import keras
from keras import ops

from keras_gsp.layers.pooling.feature_shape import flat_features, spatial_shape
from keras_gsp.ops.generalized_mean import generalized_mean
from keras_gsp.ops.precision import at_least_float32


@keras.saving.register_keras_serializable(package="keras_gsp")
class GeneralizedMeanPooling(keras.layers.Layer):
    r"""Pools each channel by its power mean, between average and maximum.

    .. math:: \text{pooled}_k =
        \Big( \frac{1}{n} \sum_j \max(f_{jk}, 10^{-6})^p \Big)^{1/p}

    Args:
        power: exponent p, at least 1. Default 3.0; 1 is average pooling of
            the positive part, infinity would be the maximum.
        **kwargs: `name`, `dtype` and other arguments of a Keras layer.

    Input shape:
        (batch, height, width, channels) or (batch, tokens, channels).

    Output shape:
        (batch, channels).

    Raises:
        ValueError: a power below 1, features of another rank.

    Example:

    ```python
    pooling = gsp.layers.GeneralizedMeanPooling(power=3.0)
    assert pooling(np.ones((2, 7, 7, 16), "float32")).shape == (2, 16)
    ```

    Reference:
        Fine-tuning CNN Image Retrieval with No Human Annotation, (3).
    """

    def __init__(self, power=3.0, **kwargs):
        super().__init__(**kwargs)
        if not power >= 1.0:
            raise ValueError(
                f"`power` must be at least 1. Received: power={power}."
            )
        self.power = power

    def call(self, features):
        """Pools features; see the class."""
        flat = at_least_float32(flat_features(features))
        pooled = generalized_mean(flat, self.power)
        return ops.cast(pooled, self.compute_dtype)

    def compute_output_shape(self, input_shape):
        """Returns (batch, channels)."""
        spatial_shape(input_shape)
        return input_shape[0], input_shape[-1]

    def get_config(self):
        """Returns the constructor's arguments."""
        return {**super().get_config(), "power": self.power}
