"""Poolings weighted by the responses themselves: CroW and HOW."""

from keras import ops

from keras_gsp._tensor import Tensor
from keras_gsp.layers.pooling.feature_pooling import (
    WeightedPooling,
    flat_features,
)
from keras_gsp.ops.masked_reductions import masked_mean, num_kept
from keras_gsp.ops.normalization import unit_sphere, vector_norm


class CroWPooling(WeightedPooling):
    r"""Weights positions by response strength and channels by rarity (CroW).

    Nothing is learned. With positive responses :math:`x_{jk} = \max(f_{jk},
    0)`, the response of a position :math:`s_j = \sum_k x_{jk}` and the share of
    positions where a channel responds :math:`q_k = \frac{1}{n} \sum_j [x_{jk} >
    0]`, which has no gradient,

    .. math:: \alpha_j = \sqrt{\frac{s_j}{\sqrt{\sum_l s_l^2}}}, \quad
        \beta_k = \log \frac{\sum_l q_l}{q_k}, \quad
        \text{pooled}_k = \beta_k \frac{1}{n} \sum_j \alpha_j x_{jk} .

    A channel that responds nowhere pools to 0.

    Input, output, mask and errors: see `FeaturePooling`.

    Example:
        ```python
        pooled = gsp.layers.CroWPooling()(np.random.normal(size=(2, 7, 7, 16)))
        ```

    Reference:
        Cross-dimensional Weighting for Aggregated Deep Convolutional
        Features, (2), (4) and (5), without the whitening and up to a factor.
        The GSP paper's code replaces the count of active positions by the mean
        sigmoid of the responses, at least 0.5.
    """

    pools_first = True

    def pool(self, features: Tensor, kept: Tensor) -> Tensor:
        responses = ops.relu(features)
        weights = self.shares(features, kept)
        total = ops.sum(weights[..., None] * responses, axis=1)
        return _rarity(responses, kept) * total / num_kept(features, kept)

    def shares(self, features: Tensor, kept: Tensor | None) -> Tensor:
        strengths = ops.sum(ops.relu(features), axis=-1)
        if kept is not None:
            strengths = kept * strengths
        shares = unit_sphere(strengths)
        # Also where a share underflows in its dtype.
        is_silent = shares == 0.0
        # Double `where`: sqrt never receives the zero whose slope is infinite.
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


class SmoothedMatchKernelPooling(WeightedPooling):
    r"""Averages smoothed features, weighted by their norm before (HOW).

    .. math:: \text{pooled} = \frac{1}{n} \sum_j \text{sg}(|f_j|)
        \, \tilde f_j

    where :math:`\tilde f` is the average over a square of 3 x 3 neighbors
    inside the map and sg stops the gradient. Tokens are not smoothed.

    Input, output, mask and errors: see `FeaturePooling`.

    Example:
        ```python
        pooled = gsp.layers.SmoothedMatchKernelPooling()(np.ones((2, 7, 7, 16)))
        ```

    Reference:
        Learning and Aggregating Deep Local Descriptors for Instance-Level
        Recognition, (7) to (9): the global descriptor of its training, not
        the match kernel of its search, before a linear map, the projection of
        an encoder. "T-SMK" of Generalized Sum Pooling for
        Metric Learning, whose code stops the gradient of the weights.
    """

    takes_maps = True
    pools_first = True

    def pool(self, features: Tensor, kept: Tensor) -> Tensor:
        flat = flat_features(features)
        weights = self.shares(features, kept)[..., None]
        if len(features.shape) == 4:
            flat = flat_features(
                ops.average_pool(
                    features,
                    3,
                    strides=1,
                    padding="same",
                    data_format="channels_last",
                )
            )
        return masked_mean(weights * flat, kept)

    def shares(self, features: Tensor, kept: Tensor | None) -> Tensor:
        norms = vector_norm(flat_features(features))
        return ops.stop_gradient(norms[..., 0])
