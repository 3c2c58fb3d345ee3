"""CroW pooling: cross-dimensional weighting of places and channels."""

import keras
from keras import ops

from keras_gsp.layers.pooling.feature_pooling import WeightedPooling
from keras_gsp.ops.masked_reductions import masked_mean, num_kept
from keras_gsp.ops.normalization import unit_sphere
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class CroWPooling(WeightedPooling):
    r"""Weights places by response strength and channels by rarity.

    Nothing is learned. With positive responses :math:`x_{jk} = \max(f_{jk},
    0)`, the response of a place :math:`s_j = \sum_k x_{jk}` and the share of
    places where a channel responds :math:`q_k = \frac{1}{n} \sum_j [x_{jk} >
    0]`,

    .. math:: \alpha_j = \sqrt{\frac{s_j}{\sqrt{\sum_l s_l^2}}}, \quad
        \beta_k = \log \frac{\sum_l q_l}{q_k}, \quad
        \text{pooled}_k = \beta_k \frac{1}{n} \sum_j \alpha_j x_{jk} .

    A channel that responds nowhere pools to 0. The shares q have no gradient.

    Input shape: (batch, height, width, channels) or (batch, tokens, channels).
    Output shape: (batch, channels). Mask and errors: see `FeaturePooling`.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    pooling = gsp.layers.CroWPooling()
    features = np.random.default_rng(0).normal(size=(2, 7, 7, 16))
    assert pooling(features).shape == (2, 16)
    ```

    Reference:
        Cross-dimensional Weighting for Aggregated Deep Convolutional
        Features, (2), (4) and (5), without the whitening. The paper sums over
        places; normalization removes the factor. The GSP paper's code replaces
        the count of active places by the mean sigmoid of the responses, which
        is at least 0.5 for every channel.
    """

    def pool(self, features: Tensor, kept: Tensor) -> Tensor:
        """Returns the weighted mean of the positive responses."""
        responses = ops.relu(features)
        weights = self.shares(features, kept)
        total = ops.sum(weights[..., None] * responses, axis=1)
        return _rarity(responses, kept) * total / num_kept(features, kept)

    def shares(self, features: Tensor, kept: Tensor | None) -> Tensor:
        """Returns the weights of the positions."""
        strengths = ops.sum(ops.relu(features), axis=-1)
        if kept is not None:
            strengths = kept * strengths
        return _root_of_share(strengths)


def _root_of_share(strengths):
    """Roots of a unit vector, with slope 0 where a place has no response."""
    shares = unit_sphere(strengths)
    # Includes shares that underflow in their dtype.
    is_silent = shares == 0.0
    # Double `where`: sqrt never receives the zero whose gradient is infinite.
    safe = ops.where(is_silent, ops.ones_like(shares), shares)
    return ops.where(is_silent, 0.0, ops.sqrt(safe))


def _rarity(responses, kept):
    """Logarithm of the inverse of a channel's share of all activity."""
    active = ops.cast(responses > 0.0, responses.dtype)
    shares = masked_mean(active, kept)
    total = ops.sum(shares, axis=-1, keepdims=True)
    is_silent = shares == 0.0
    safe = ops.where(is_silent, ops.ones_like(shares), shares)
    safe_total = ops.where(total == 0.0, ops.ones_like(total), total)
    return ops.where(is_silent, 0.0, ops.log(safe_total) - ops.log(safe))
