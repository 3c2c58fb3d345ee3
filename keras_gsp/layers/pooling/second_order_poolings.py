"""Poolings by second-order statistics: GSoP and SOLAR."""

from typing import Any

import keras
from keras import ops

from keras_gsp._checks import check_count
from keras_gsp._tensor import Tensor
from keras_gsp.layers.pooling.feature_pooling import FeaturePooling
from keras_gsp.ops.masked_reductions import (
    check_power,
    generalized_mean,
    masked_mean,
    masked_softmax,
    num_kept,
)
from keras_gsp.ops.precision import full_matmul

# As in the reference code. With Keras's 0.99 the moving averages still hold a
# tenth of their initial variance after a few hundred steps.
MOMENTUM = 0.9


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

    Input, output, mask and errors: see `FeaturePooling`.

    Example:

    ```python
    pooled = gsp.layers.GSoPPooling(attention_size=8)(np.ones((2, 7, 7, 16)))
    ```

    Reference:
        Global Second-order Pooling Convolutional Networks, section 3.2
        (channel-wise). The comparison of the GSP paper adds the position-wise
        half, whose weights are tied to one size of the feature map. That code
        also does not subtract the mean in C and divides by n squared.
    """

    takes_mask = True

    _FILTERS = 4

    def __init__(self, attention_size: int = 128, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_count(attention_size=attention_size)
        self.attention_size = attention_size

    def create_weights(self, channels: int, input_shape: tuple) -> None:
        size = self.attention_size
        self.create_dense("reduce", channels, size, use_bias=False)
        _add_normalization(self, "feature_normalization", size)
        _add_normalization(self, "row_normalization", size, axis=1)
        self.row_filters = self.full_precision_weight(
            "row_filters", (size, size, self._FILTERS)
        )
        self.create_dense("expand", self._FILTERS * size, channels)

    def pool(
        self, features: Tensor, kept: Tensor, mask: Tensor | None = None
    ) -> Tensor:
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


class SOLARPooling(FeaturePooling):
    r"""Applies self-attention to the features, then pools by power mean.

    .. math:: q_j = [N(W_q f_j)]_+, \quad k_j = [N(W_k f_j)]_+,
        \quad v_j = W_v f_j + b_v, \quad
        g_j = f_j + W_o \sum_l
        \frac{e^{q_j \cdot k_l / \sqrt{d}}}{\sum_i e^{q_j \cdot k_i /
        \sqrt{d}}} v_l + b_o

    and :math:`\text{pooled} = (\frac{1}{n} \sum_j \max(g_j, 10^{-6})^p)^{1 /
    p}`. N is batch normalization. Memory grows with the square of the number
    of features. Queries, keys and values have half the channels, d, at least
    1. W_o and b_o start at zero: at first the result is the power mean of the
    features.

    Args:
        power: exponent p, at least 1. Default 3.0.

    Input, output, mask and errors: see `FeaturePooling`.

    Example:
        ```python
        pooled = gsp.layers.SOLARPooling()(np.ones((2, 7, 7, 16)))
        ```

    Reference:
        SOLAR: Second-Order Loss and Attention for Image Retrieval, (2) to
        (4), one block before GeM; details as in its code.
    """

    takes_mask = True
    pools_first = True

    def __init__(self, power: float = 3.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.power = check_power(power)

    def create_weights(self, channels: int, input_shape: tuple) -> None:
        size = max(1, channels // 2)
        self.create_dense("value", channels, size)
        self.create_dense("output", size, channels, initializer="zeros")
        for name in ("query", "key"):
            # Batch normalization would remove a bias.
            self.create_dense(name, channels, size, use_bias=False)
            _add_normalization(self, f"{name}_normalization", size)

    def pool(
        self, features: Tensor, kept: Tensor, mask: Tensor | None = None
    ) -> Tensor:
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


def _add_normalization(layer, name, size, axis=-1):
    normalization = keras.layers.BatchNormalization(
        axis, MOMENTUM, name=name, dtype=layer.full_precision
    )
    normalization.build((None, size, size))
    setattr(layer, name, normalization)
