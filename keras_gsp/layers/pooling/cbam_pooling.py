"""CBAM pooling: channel attention, spatial attention, then the average."""

from typing import Any

import keras
from keras import ops

from keras_gsp.layers.pooling.feature_pooling import (
    WeightedPooling,
    flat_features,
)
from keras_gsp.ops.arguments import check_count
from keras_gsp.ops.masked_reductions import masked_max, masked_mean
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class CBAMPooling(WeightedPooling):
    r"""Weights channels and places by learned attention, then averages.

    .. math:: \beta = \sigma(W_1 [W_0 \bar f]_+ + W_1 [W_0 \hat f]_+), \quad
        g_j = \beta \odot f_j, \quad
        \alpha = \sigma(K * [\text{mean}_k g_{jk};\ \max_k g_{jk}]), \quad
        \text{pooled} = \frac{1}{n} \sum_j \alpha_j g_j

    with the average :math:`\bar f` and the maximum :math:`\hat f` over places
    and a convolution K from two channels to one. For tokens, which have no
    neighbors, K is 1x1, so that a layer built for maps does not accept tokens
    and vice versa.

    Args:
        reduction: the hidden layer has channels / reduction units (at least
            1). Default 16.
        kernel_size: side of K on feature maps, odd. Default 7.

    Input shape: (batch, height, width, channels) or (batch, tokens, channels).
    Output shape: (batch, channels). Mask and errors: see `FeaturePooling`.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    pooling = gsp.layers.CBAMPooling(reduction=4)
    assert pooling(np.ones((2, 7, 7, 16), "float32")).shape == (2, 16)
    ```

    Reference:
        CBAM: Convolutional Block Attention Module, (2) and (3), without the
        batch normalization of its code. The comparison of the GSP paper uses
        `kernel_size=3`.
    """

    takes_maps = True

    def __init__(
        self, reduction: int = 16, *, kernel_size: int = 7, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        check_count(reduction=reduction, kernel_size=kernel_size)
        if kernel_size % 2 == 0:
            raise ValueError(
                f"`kernel_size` must be odd. Received: {kernel_size=}."
            )
        self.reduction = reduction
        self.kernel_size = kernel_size

    def create_weights(self, channels: int, input_shape: tuple) -> None:
        """Creates the two-layer perceptron and the convolution."""
        hidden = max(1, channels // self.reduction)
        self.create_dense("squeeze", channels, hidden, use_bias=False)
        self.create_dense("expand", hidden, channels, use_bias=False)
        self.input_rank = len(input_shape)
        side = self.kernel_size if self.input_rank == 4 else 1
        self.place_kernel = self.full_precision_weight(
            "place_kernel", (side, side, 2, 1)
        )

    def pool(self, features: Tensor, kept: Tensor) -> Tensor:
        """Returns the average of the weighted features."""
        damped, weights = self._attended(features, kept)
        return masked_mean(weights[..., None] * damped, kept)

    def shares(self, features: Tensor, kept: Tensor | None) -> Tensor:
        """Returns the spatial attention."""
        return self._attended(features, kept)[1]

    def _attended(self, features, kept):
        """Features after the channel attention, and the spatial attention."""
        self._check_rank(features.shape)
        flat = flat_features(features)
        channels = ops.sigmoid(
            self._perceptron(masked_mean(flat, kept))
            + self._perceptron(masked_max(flat, kept))
        )
        damped = channels[:, None] * flat
        size = ops.cast(damped.shape[-1], damped.dtype)
        facts = ops.stack(
            [ops.sum(damped, axis=-1) / size, ops.max(damped, axis=-1)],
            axis=-1,
        )
        shape = ops.shape(features)
        rows = shape[1:-1] if len(features.shape) == 4 else (shape[1], 1)
        places = ops.conv(
            ops.reshape(facts, (-1, *rows, 2)),
            ops.convert_to_tensor(self.place_kernel),
            padding="same",
            data_format="channels_last",
        )
        places = ops.reshape(ops.sigmoid(places), (-1, rows[0] * rows[1]))
        return damped, places

    def _check_rank(self, shape):
        """K was created for maps or for tokens, not for both."""
        if len(shape) != self.input_rank and self.kernel_size > 1:
            made_for = "feature maps" if self.input_rank == 4 else "tokens"
            raise ValueError(
                f"Features must be the {made_for} that the layer was built "
                f"for. Received: features of shape {tuple(shape)}. Use "
                "another layer for these, or kernel_size=1."
            )

    def _perceptron(self, pooled):
        return self.dense("expand", ops.relu(self.dense("squeeze", pooled)))
