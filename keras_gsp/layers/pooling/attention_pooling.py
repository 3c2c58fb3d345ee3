"""Attention pooling with learned queries, one for each part of the channels."""

from typing import Any

import keras
from keras import ops

from keras_gsp.layers.pooling.feature_pooling import (
    WeightedPooling,
    known_channels,
)
from keras_gsp.ops.arguments import check_count
from keras_gsp.ops.masked_reductions import masked_softmax
from keras_gsp.ops.precision import full_matmul
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class AttentionPooling(WeightedPooling):
    r"""Pools by attention with several learned queries.

    Query :math:`q_i` attends to the features and pools part i of the channels
    of the values:

    .. math:: a_{ij} = \text{softmax}_j (q_i \cdot f_j), \qquad
        \text{pooled} = \Big[ \sum_j a_{1j} (W f_j)^{(1)}, \dots,
        \sum_j a_{mj} (W f_j)^{(m)} \Big]

    This is the attention of a MAP head with m heads and one learned probe, with
    the probe and the key projection of a head merged into its query, and
    without normalization, biases, scaling of the scores (the query learns it),
    output projection and perceptron.

    Args:
        num_queries: m, at least 1. Default 8. Must divide the channels.
        use_value_projection: whether to use W. Default `True`.

    Input shape: (batch, height, width, channels) or (batch, tokens, channels).
    Output shape: (batch, channels). Mask and errors: see `FeaturePooling`.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    pooling = gsp.layers.AttentionPooling(num_queries=4)
    features = np.random.default_rng(0).normal(size=(2, 196, 16))
    assert pooling(features).shape == (2, 16)
    assert pooling.pooling_weights(features).shape == (2, 196, 4)
    ```

    Reference:
        Attention, Please! Revisiting Attentive Probing for Masked Image
        Modeling (efficient probing); Scaling Vision Transformers (MAP head).
    """

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
        """Raises `ValueError` unless `num_queries` divides the channels."""
        channels = known_channels(input_shape)
        if channels % self.num_queries:
            raise ValueError(
                "`num_queries` must divide the channels. Received: "
                f"num_queries={self.num_queries}, channels={channels}."
            )

    def create_weights(self, channels: int, input_shape: tuple) -> None:
        """Creates the queries and W."""
        self.queries = self.full_precision_weight(
            "queries", (self.num_queries, channels)
        )
        if self.use_value_projection:
            self.create_dense("value", channels, channels, use_bias=False)

    def pool(self, features: Tensor, kept: Tensor) -> Tensor:
        """Returns the pooled parts of all queries, concatenated."""
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
        """Returns the attention weights of each query."""
        scores = full_matmul(features, ops.transpose(self.queries))
        return ops.swapaxes(
            masked_softmax(ops.swapaxes(scores, 1, 2), kept), 1, 2
        )
