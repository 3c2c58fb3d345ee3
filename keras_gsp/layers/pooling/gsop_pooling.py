"""GSoP pooling: channels weighted by their covariances."""

from typing import Any

import keras
from keras import ops

from keras_gsp.layers.pooling.feature_pooling import FeaturePooling
from keras_gsp.ops.arguments import check_count
from keras_gsp.ops.masked_reductions import masked_mean, num_kept
from keras_gsp.ops.precision import full_matmul
from keras_gsp.ops.tensor import Tensor

# As in the reference code. With Keras's 0.99 the moving averages still hold a
# tenth of their initial variance after a few hundred steps.
MOMENTUM = 0.9


@keras.saving.register_keras_serializable(package="keras_gsp")
class GSoPPooling(FeaturePooling):
    r"""Weights channels by their covariances over the image, then averages.

    .. math:: g_j = [N(W f_j)]_+, \quad
        C = \frac{1}{n} \sum_j (g_j - \bar g)(g_j - \bar g)^\top, \quad
        h_{rs} = \sum_t C'_{rt} G_{rts}, \quad
        \text{pooled} = \sigma(A h + a) \odot \frac{1}{n} \sum_j f_j

    where N is batch normalization over features, C' the covariance matrix
    after batch normalization with one mean and variance per row, and G holds
    four filters for each row r, s = 1..4.

    Args:
        attention_size: rows of C, at least 1. Default 128.

    Input shape: (batch, height, width, channels) or (batch, tokens, channels).
    Output shape: (batch, channels). Mask and errors: see `FeaturePooling`.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    pooling = gsp.layers.GSoPPooling(attention_size=8)
    assert pooling(np.ones((2, 7, 7, 16), "float32")).shape == (2, 16)
    ```

    Reference:
        Global Second-order Pooling Convolutional Networks, section 3.2
        (channel-wise). The comparison of the GSP paper adds the position-wise
        half, whose weights are tied to one size of the feature map; this
        layer pools any size. That code also does not subtract the mean in C
        and divides by n squared.
    """

    takes_mask = True

    _FILTERS = 4

    def __init__(self, attention_size: int = 128, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_count(attention_size=attention_size)
        self.attention_size = attention_size

    def create_weights(self, channels: int, input_shape: tuple) -> None:
        """Creates the reduction, the row filters and the expansion."""
        size = self.attention_size
        self.create_dense("reduce", channels, size, use_bias=False)
        self.feature_normalization = keras.layers.BatchNormalization(
            momentum=MOMENTUM,
            name="feature_normalization",
            dtype=self.full_precision,
        )
        self.feature_normalization.build((None, None, size))
        self.row_normalization = keras.layers.BatchNormalization(
            axis=1,
            momentum=MOMENTUM,
            name="row_normalization",
            dtype=self.full_precision,
        )
        self.row_normalization.build((None, size, size))
        self.row_filters = self.full_precision_weight(
            "row_filters", (size, size, self._FILTERS)
        )
        self.create_dense("expand", self._FILTERS * size, channels)

    def pool(
        self, features: Tensor, kept: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Returns the average with weighted channels."""
        has_any = None
        if mask is not None:
            mask = ops.cast(mask, "bool")
            has_any = ops.any(mask, axis=-1, keepdims=True)
        reduced = self.dense("reduce", features)
        reduced = ops.relu(self.feature_normalization(reduced, mask=mask))
        centered = reduced - masked_mean(reduced, kept)[:, None]
        if kept is not None:
            centered = kept[..., None] * centered
        sums = full_matmul(ops.swapaxes(centered, 1, 2), centered)
        covariances = sums / ops.reshape(num_kept(features, kept), (-1, 1, 1))
        normalized = self.row_normalization(covariances, mask=has_any)
        # Row r of each image meets filters r: rows first, then images.
        rows = full_matmul(
            ops.swapaxes(normalized, 0, 1),
            ops.convert_to_tensor(self.row_filters),
        )
        rows = ops.swapaxes(rows, 0, 1)
        size = self._FILTERS * self.attention_size
        weights = self.dense("expand", ops.reshape(rows, (-1, size)))
        return ops.sigmoid(weights) * masked_mean(features, kept)
