"""Poolings with learned attention: queries, EP, CBAM, DELF, SimPool."""

from typing import Any

import keras
from keras import ops

from keras_gsp._checks import check_count
from keras_gsp._tensor import Tensor
from keras_gsp.layers.pooling.feature_pooling import (
    WeightedPooling,
    flat_features,
    known_channels,
)
from keras_gsp.ops.masked_reductions import (
    check_power,
    masked_max,
    masked_mean,
    masked_softmax,
)
from keras_gsp.ops.precision import full_matmul


class AttentionPooling(WeightedPooling):
    r"""Pools by attention with several learned queries.

    Query :math:`q_i` attends to the features and pools part i of the channels
    of the values:

    .. math:: a_{ij} = \text{softmax}_j (q_i \cdot f_j), \qquad
        \text{pooled} = \Big[ \sum_j a_{1j} (W f_j)^{(1)}, \dots,
        \sum_j a_{mj} (W f_j)^{(m)} \Big]

    A MAP head with m heads and one learned probe, merged with a head's key
    projection into its query, without normalization, biases, scaling of the
    scores (the query learns it), output projection and perceptron. Efficient
    probing scales them: `EfficientProbingPooling`.

    Args:
        num_queries: m, at least 1, a divisor of the channels. Default 8.
        use_value_projection: whether to use W. Default `True`.

    Input, output, mask and errors: see `FeaturePooling`.

    Example:
        ```python
        pooling = gsp.layers.AttentionPooling(num_queries=4)
        features = np.random.normal(size=(2, 196, 16))
        assert pooling(features).shape == (2, 16)
        assert pooling.pooling_weights(features).shape == (2, 196, 4)
        ```

    Reference:
        Scaling Vision Transformers (MAP head).
    """

    initial_queries: Any = "glorot_uniform"

    def __init__(
        self,
        num_queries: int = 8,
        *,
        use_value_projection: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_count(num_queries=num_queries)
        self.num_queries = num_queries
        self.use_value_projection = use_value_projection

    def check_size(self, input_shape: tuple) -> None:
        """Raises `ValueError` unless `num_queries` divides the values."""
        size = self.output_size(known_channels(input_shape))
        if size % self.num_queries:
            raise ValueError(
                "`num_queries` must divide the channels of the values. "
                f"Received: num_queries={self.num_queries}, channels={size}."
            )

    def create_weights(self, channels: int, input_shape: tuple) -> None:
        self.queries = self.full_precision_weight(
            "queries", (self.num_queries, channels), self.initial_queries
        )
        if self.use_value_projection:
            size = self.output_size(channels)
            self.create_dense("value", channels, size, use_bias=False)

    def pool(self, features: Tensor, kept: Tensor) -> Tensor:
        shares = ops.swapaxes(self.shares(features, kept), 1, 2)
        values = features
        if self.use_value_projection:
            values = self.dense("value", features)
        channels = values.shape[-1]
        size = channels // self.num_queries
        parts = ops.reshape(
            values, (-1, ops.shape(values)[1], self.num_queries, size)
        )
        parts = ops.swapaxes(parts, 1, 2)
        pooled = full_matmul(shares[:, :, None, :], parts)
        return ops.reshape(pooled, (-1, channels))

    def shares(self, features: Tensor, kept: Tensor | None) -> Tensor:
        scores = full_matmul(features, ops.transpose(self.queries))
        return ops.swapaxes(
            masked_softmax(ops.swapaxes(scores, 1, 2), kept), 1, 2
        )


class EfficientProbingPooling(AttentionPooling):
    r"""Pools by multi-query cross-attention without key projection (EP).

    `AttentionPooling` with scores :math:`q_i \cdot f_j / \sqrt d`, d the
    channels, small initial queries and values of another size. It starts near
    average pooling of W f. An encoder projects the pooled vector, as the
    paper's linear classifier does.

    Args:
        num_queries: m, at least 1. Default 32.
        projection_size: outputs of W, a multiple of `num_queries`. `None`
            (default): the channels. A smaller one saves parameters.
        use_value_projection: whether to use W. Default `True`.

    Output shape: (batch, projection_size).

    Input, mask and errors: see `FeaturePooling`.

    Example:
        ```python
        pooling = gsp.layers.EfficientProbingPooling(4, projection_size=8)
        features = np.random.normal(size=(2, 196, 16))
        assert pooling(features).shape == (2, 8)
        assert pooling.pooling_weights(features).shape == (2, 196, 4)
        ```

    Reference:
        Psomas et al., "Attention, Please! Revisiting Attentive Probing Through
        the Lens of Efficiency", ICLR 2026. Number and start of the queries are
        those of its code.
    """

    pools_first = True
    initial_queries = {"class_name": "RandomNormal", "config": {"stddev": 0.02}}

    def __init__(
        self,
        num_queries: int = 32,
        *,
        projection_size: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_queries, **kwargs)
        check_count(is_optional=True, projection_size=projection_size)
        if projection_size is not None and not self.use_value_projection:
            raise ValueError(
                "`projection_size` must be None without a projection. Received:"
                f" {projection_size=}, use_value_projection=False."
            )
        self.projection_size = projection_size

    def shares(self, features: Tensor, kept: Tensor | None) -> Tensor:
        return super().shares(features * features.shape[-1] ** -0.5, kept)

    def output_size(self, channels: int) -> int:
        return self.projection_size or channels


class CBAMPooling(WeightedPooling):
    r"""Weights channels and positions by learned attention, then averages.

    .. math:: \beta = \sigma(W_1 [W_0 \bar f]_+ + W_1 [W_0 \hat f]_+), \quad
        g_j = \beta \odot f_j, \quad
        \alpha = \sigma(K * [\text{mean}_k g_{jk};\ \max_k g_{jk}]), \quad
        \text{pooled} = \frac{1}{n} \sum_j \alpha_j g_j

    with the average :math:`\bar f` and the maximum :math:`\hat f` over
    positions and a convolution K from two channels to one. For tokens, which
    have no neighbors, K is 1x1, so that a layer built for maps does not accept
    tokens and vice versa.

    Args:
        reduction: the hidden layer has channels / reduction units (at least
            1). Default 16.
        kernel_size: side of K on feature maps, odd. Default 7.

    Input, output, mask and errors: see `FeaturePooling`.

    Example:
        ```python
        pooled = gsp.layers.CBAMPooling(reduction=4)(np.ones((2, 7, 7, 16)))
        ```

    Reference:
        CBAM: Convolutional Block Attention Module, (2) and (3), without the
        batch normalization of its code. The GSP paper has `kernel_size=3`.
    """

    takes_maps = True
    pools_first = True

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
        hidden = max(1, channels // self.reduction)
        self.create_dense("squeeze", channels, hidden, use_bias=False)
        self.create_dense("expand", hidden, channels, use_bias=False)
        self.input_rank = len(input_shape)
        side = self.kernel_size if self.input_rank == 4 else 1
        self.place_kernel = self.full_precision_weight(
            "place_kernel", (side, side, 2, 1)
        )

    def pool(self, features: Tensor, kept: Tensor) -> Tensor:
        damped, weights = self._attended(features, kept)
        return masked_mean(weights[..., None] * damped, kept)

    def shares(self, features: Tensor, kept: Tensor | None) -> Tensor:
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
            [ops.sum(damped, axis=-1) / size, ops.max(damped, axis=-1)], axis=-1
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


class DELFPooling(WeightedPooling):
    r"""Weights each feature with a learned attention score (DELF).

    .. math:: \alpha_j = \log(1 + e^{w^\top [W f_j + b]_+ + c}), \qquad
        \text{pooled} = \frac{1}{n} \sum_j \alpha_j f_j

    The scores are not normalized: they may all be small in an image without
    salient features.

    Args:
        hidden_size: outputs of W, at least 1. Default 512.

    Input, output, mask and errors: see `FeaturePooling`.

    Example:
        ```python
        pooled = gsp.layers.DELFPooling(hidden_size=32)(np.ones((2, 7, 7, 16)))
        ```

    Reference:
        Large-Scale Image Retrieval with Attentive Deep Local Features, (1),
        with a mean for its sum. The paper trains the scores after the
        features; the comparison of the GSP paper trains both together.
    """

    pools_first = True

    def __init__(self, hidden_size: int = 512, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_count(hidden_size=hidden_size)
        self.hidden_size = hidden_size

    def create_weights(self, channels: int, input_shape: tuple) -> None:
        self.create_dense("hidden", channels, self.hidden_size)
        self.create_dense("score", self.hidden_size, 1)

    def pool(self, features: Tensor, kept: Tensor) -> Tensor:
        scores = self.shares(features, kept)[..., None]
        return masked_mean(scores * features, kept)

    def shares(self, features: Tensor, kept: Tensor | None) -> Tensor:
        hidden = ops.relu(self.dense("hidden", features))
        return ops.softplus(self.dense("score", hidden)[..., 0])


# Lower bound of the values: the slope of a power at 0 may be infinite.
_SMALLEST_VALUE = 1e-6


class SimPooling(WeightedPooling):
    r"""Pools by attention whose query is the average feature (SimPool).

    .. math:: x_j = N(f_j), \quad
        a_j = \text{softmax}_j \frac{(W_q \bar f) \cdot (W_k x_j)}{\sqrt d},
        \quad v_j = x_j - \min_{l,k} x_{lk}, \quad
        \text{pooled} = \Big( \sum_j a_j v_j^p \Big)^{1/p}

    with :math:`\bar f` the average of the features, N layer normalization
    with learned scale and offset, and the minimum over the whole image.

    Args:
        power: exponent p, at least 1. Default 1.25, the paper's for vision
            transformers; 2 for convolutional networks.

    Input, output, mask and errors: see `FeaturePooling`.

    Example:
        ```python
        pooled = gsp.layers.SimPooling()(np.random.normal(size=(2, 196, 16)))
        ```

    Reference:
        Keep It SimPooling: Who Said Supervised Transformers Suffer from
        Attention Deficit?, algorithm 1. Values are clipped below at 1e-6, as
        the inverse power has an infinite slope at 0.
    """

    pools_first = True

    def __init__(self, power: float = 1.25, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.power = check_power(power)

    def create_weights(self, channels: int, input_shape: tuple) -> None:
        for name in ("query", "key"):
            self.create_dense(name, channels, channels, use_bias=False)
        self.normalization = keras.layers.LayerNormalization(
            epsilon=1e-6, name="normalization", dtype=self.full_precision
        )
        self.normalization.build((None, None, channels))

    def pool(self, features: Tensor, kept: Tensor) -> Tensor:
        normalized = self.normalization(features)
        shares = self._attention(features, normalized, kept)
        real = normalized
        if kept is not None:
            real = ops.where(kept[..., None] > 0.0, normalized, float("inf"))
        lowest = ops.min(real, axis=(1, 2), keepdims=True)
        values = ops.maximum(normalized - lowest, _SMALLEST_VALUE)
        powers = shares[..., None] * ops.power(values, self.power)
        return ops.power(ops.sum(powers, axis=1), 1.0 / self.power)

    def shares(self, features: Tensor, kept: Tensor | None) -> Tensor:
        return self._attention(features, self.normalization(features), kept)

    def _attention(self, features, normalized, kept):
        query = self.dense("query", masked_mean(features, kept))
        keys = self.dense("key", normalized)
        scores = full_matmul(keys, query[..., None])[..., 0]
        return masked_softmax(scores * keys.shape[-1] ** -0.5, kept)
