"""SOLAR pooling: self-attention over places, then generalized-mean pooling."""

from typing import Any

import keras
from keras import ops

from keras_gsp.layers.pooling.feature_pooling import FeaturePooling
from keras_gsp.ops.arguments import check_count
from keras_gsp.ops.masked_reductions import (
    check_power,
    generalized_mean,
    masked_softmax,
)
from keras_gsp.ops.precision import full_matmul
from keras_gsp.ops.tensor import Tensor

# As in the reference code; see `GSoPPooling`.
MOMENTUM = 0.9


@keras.saving.register_keras_serializable(package="keras_gsp")
class SOLARPooling(FeaturePooling):
    r"""Applies self-attention to the features, then pools by power mean.

    .. math:: q_j = [N(W_q f_j)]_+, \quad k_j = [N(W_k f_j)]_+,
        \quad v_j = W_v f_j + b_v, \quad
        g_j = f_j + W_o \sum_l
        \frac{e^{q_j \cdot k_l / \sqrt{d}}}{\sum_i e^{q_j \cdot k_i /
        \sqrt{d}}} v_l + b_o

    and :math:`\text{pooled} = (\frac{1}{n} \sum_j \max(g_j, 10^{-6})^p)^{1 /
    p}`. N is batch normalization. Memory grows with the square of the number
    of features. W_o and b_o start at zero, so that the initial result is the
    power mean of the features.

    Args:
        power: exponent p, at least 1. Default 3.0.
        attention_size: d, the size of queries, keys and values. Default
            `None`: half the channels.

    Input shape: (batch, height, width, channels) or (batch, tokens, channels).
    Output shape: (batch, channels). Mask and errors: see `FeaturePooling`.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    pooling = gsp.layers.SOLARPooling()
    assert pooling(np.ones((2, 7, 7, 16), "float32")).shape == (2, 16)
    ```

    Reference:
        SOLAR: Second-Order Loss and Attention for Image Retrieval, (2) to
        (4), one block before GeM. Batch normalization of queries and keys
        only, d and the zero W_o are as in its code.
    """

    takes_mask = True

    def __init__(
        self,
        power: float = 3.0,
        *,
        attention_size: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_count(attention_size=attention_size, is_optional=True)
        self.power = check_power(power)
        self.attention_size = attention_size

    def create_weights(self, channels: int, input_shape: tuple) -> None:
        """Creates the maps to queries, keys, values and the output."""
        size = self.attention_size or max(1, channels // 2)
        self.create_dense("value", channels, size)
        self.create_dense("output", size, channels, initializer="zeros")
        for name in ("query", "key"):
            # Batch normalization would remove a bias.
            self.create_dense(name, channels, size, use_bias=False)
            layer = keras.layers.BatchNormalization(
                momentum=MOMENTUM,
                name=f"{name}_normalization",
                dtype=self.full_precision,
            )
            layer.build((None, None, size))
            setattr(self, f"{name}_normalization", layer)

    def pool(
        self, features: Tensor, kept: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Returns the power mean of the attended features."""
        if mask is not None:
            mask = ops.cast(mask, "bool")
        queries = self.dense("query", features)
        queries = ops.relu(self.query_normalization(queries, mask=mask))
        keys = self.dense("key", features)
        keys = ops.relu(self.key_normalization(keys, mask=mask))
        scale = keys.shape[-1] ** -0.5
        scores = scale * full_matmul(queries, ops.swapaxes(keys, 1, 2))
        values = self.dense("value", features)
        seen = full_matmul(masked_softmax(scores, kept), values)
        enriched = features + self.dense("output", seen)
        return generalized_mean(enriched, self.power, kept=kept)
