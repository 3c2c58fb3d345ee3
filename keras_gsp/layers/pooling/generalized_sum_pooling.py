"""Generalized sum pooling (GSP): select what to pool by partial transport."""

import math
from typing import Any

from keras import initializers, ops, regularizers

from keras_gsp._checks import check_count, check_positive, known_to_differ
from keras_gsp._tensor import Tensor
from keras_gsp.layers.pooling.channel_poolings import (
    add_power_weight,
    checked_power,
    power_of,
)
from keras_gsp.layers.pooling.feature_pooling import (
    FeaturePooling,
    check_mask,
    flat_features,
    spatial_shape,
)
from keras_gsp.ops.covering import prototype_cover
from keras_gsp.ops.masked_reductions import (
    generalized_mean,
    kept_from_mask,
    masked_max,
    zero_where_empty,
    zero_where_masked,
)
from keras_gsp.ops.precision import at_least_float32, full_matmul
from keras_gsp.ops.transport import (
    BallTransport,
    ball_transport,
    check_transport_ratio,
    kept_features,
)


class GeneralizedSumPooling(FeaturePooling):
    r"""Pools the features close to learned prototypes and drops the rest (GSP).

    A drop-in replacement for global average pooling that learns to ignore
    background. Features :math:`f_j` and prototypes :math:`\omega_i`, both
    projected onto the unit ball, are matched by entropic partial transport
    with Euclidean costs (`gsp.ops.partial_transport`): the plan :math:`\pi`
    moves the fraction :math:`\mu` (`transport_ratio`) of the features' mass to
    the prototypes, the residual :math:`\rho` is dropped.

    .. math:: v_j = \frac{1/n - \rho_j}{\mu}, \qquad
              \text{pooled} = \sum_j v_j f_j, \qquad
              z_i = \frac{1}{\mu} \sum_j \pi_{ij}

    The pooling weights v and the histogram z sum to 1. With
    `transport_ratio=1` this is average pooling; towards 0 the weights become
    a softmax over the features. The transport problem is solved to rounding
    error in float32 at least, and differentiated in closed form.

    Args:
        num_prototypes: number of prototypes m, at least 1. Default 64.
        transport_ratio: fraction of the mass that is pooled, in (0, 1].
            Default 0.3. Use less for images with a small subject.
        inverse_temperature: sharpness of the transport, positive, for costs
            (distances) in [0, 2]. Default 20.0; the paper has 5.0. In clutter
            take 40 to 80.
        power: exponent of a generalized mean of the weighted features, at
            least 1. Default 1.0: the weighted sum. Above 1, weighted features
            are clipped below at 1e-6, as in GeM.
        learn_power: whether to learn that exponent; see
            `GeneralizedMeanPooling`. Default `False`.
        return_histogram: whether a call also returns the histogram z, an
            input of the zero-shot and cross-batch regularizers. Default
            `False`.
        add_max: whether to add each channel's maximum over all features,
            "GMP + GSP". Default `False`.
        learn_ratio: whether to learn the ratio by a weight, `ratio_logit` =
            log(ratio / (1 - ratio)), that starts at `transport_ratio` (below
            1). Default `False`.
        use_affine_costs: whether features are matched as :math:`A f_j + b`, a
            learned map to the same size, and pooled as they are. Costs a 1x1
            convolution to as many channels. Default `False`.
        prototype_initializer: initializer of the prototypes.
        prototype_regularizer: regularizer of the prototypes.

    Call arguments:
        features, mask: see `FeaturePooling`; the ratio refers to the tokens
            that count. Default mask: the Keras masks of features and values.
        values: optional, the features' shape except for the channels. The
            features determine the weights, the values are pooled: GeM + GSP
            of the paper matches projected features and takes the generalized
            mean of the backbone's. Default `None`: the features.
        features_mask, values_mask: filled by Keras in calls with values.

    Output shape:
        (batch, channels), the channels of `values` if given; with
        `return_histogram=True` a second output (batch, num_prototypes) in
        float32 or float64.

    Example:
        ```python
        model = keras.Sequential([keras.Input((7, 7, 16))])
        model.add(gsp.layers.GeneralizedSumPooling(8, transport_ratio=0.3))
        assert model(np.random.normal(size=(2, 7, 7, 16))).shape == (2, 16)
        ```

    Reference:
        Generalized Sum Pooling for Metric Learning, (P2), (4.2), (4.3);
        GeM + GSP and GMP + GSP: supplement 1.2. The reference code stops
        after a number of projections; here the weights always sum to 1.
    """

    # A call accepts `values`.
    takes_values = True

    def __init__(
        self,
        num_prototypes: int = 64,
        transport_ratio: float = 0.3,
        inverse_temperature: float = 20.0,
        *,
        power: float = 1.0,
        learn_power: bool = False,
        return_histogram: bool = False,
        add_max: bool = False,
        learn_ratio: bool = False,
        use_affine_costs: bool = False,
        prototype_initializer: Any = "glorot_uniform",
        prototype_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_count(num_prototypes=num_prototypes)
        check_positive(inverse_temperature=inverse_temperature)
        self.num_prototypes = num_prototypes
        self.transport_ratio = check_transport_ratio(transport_ratio)
        self.inverse_temperature = inverse_temperature
        self.power = checked_power(power, learn_power)
        self.pools_first = self.power != 1.0  # GeM + GSP
        self.learn_power = learn_power
        self.return_histogram = return_histogram
        self.add_max = add_max
        self.learn_ratio = learn_ratio
        self.use_affine_costs = use_affine_costs
        self.prototype_initializer = initializers.get(prototype_initializer)
        self.prototype_regularizer = regularizers.get(prototype_regularizer)
        if learn_ratio and transport_ratio == 1.0:
            raise ValueError(
                "`transport_ratio` must be below 1 with learn_ratio=True. "
                f"Received: transport_ratio={transport_ratio}."
            )

    def create_weights(self, channels: int, input_shape: tuple) -> None:
        """Creates the prototypes, (num_prototypes, channels)."""
        # Costs in half precision would change the weights visibly.
        self.prototypes = self.full_precision_weight(
            "prototypes",
            (self.num_prototypes, channels),
            self.prototype_initializer,
            self.prototype_regularizer,
        )
        add_power_weight(self)
        if self.learn_ratio:
            ratio = self.transport_ratio
            start = math.log(ratio) - math.log1p(-ratio)
            self.ratio_logit = self.full_precision_weight(
                "ratio_logit", (), initializers.Constant(start)
            )
        if self.use_affine_costs:
            self.create_dense("matching", channels, channels)

    def call(
        self,
        features: Tensor,
        mask: Tensor | None = None,
        values: Tensor | None = None,
        features_mask: Tensor | None = None,
        values_mask: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Pools features, or values with the features' weights."""
        if values is None:
            values = features
        if known_to_differ(features.shape[:-1], values.shape[:-1]):
            raise ValueError(
                "`values` must have the shape of the features except for the "
                f"channels. Received: features of shape {features.shape}, "
                f"values of shape {values.shape}."
            )
        # Keras fills these, not `mask`, in a call with two tensors.
        masks = [x for x in (features_mask, values_mask) if x is not None]
        if mask is None and masks:
            mask = ops.logical_and(masks[0], masks[-1])
        transport = self._transport(features, mask)
        flat = zero_where_masked(at_least_float32(flat_features(values)), mask)
        pooled = self._pool(flat, transport.weights, mask)
        pooled = ops.cast(pooled, self.compute_dtype)
        if not self.return_histogram:
            return pooled
        # z_i = sum_j pi_ij / mu, with pi_ij = mu v_j a_ij.
        histogram = full_matmul(
            ops.expand_dims(transport.weights, 1), transport.assignment
        )[:, 0]
        return pooled, histogram

    def pooling_weights(
        self, features: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Returns the pooling weights v of a call, maps that sum to 1."""
        features = self.as_features(features)
        weights = self._transport(features, mask).weights
        return ops.reshape(weights, (-1, *spatial_shape(features)))

    def residual(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns the mass left behind, maps that sum to 1 - ratio."""
        features = self.as_features(features)
        residual = self._transport(features, mask).residual
        return ops.reshape(residual, (-1, *spatial_shape(features)))

    def transport_plan(
        self, features: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Returns the mass moved from each feature to each prototype.

        Maps with a last axis of prototypes, summing to `transport_ratio`.
        """
        features = self.as_features(features)
        weights, _, assignment = self._transport(features, mask)
        plan = self.ratio * weights[..., None] * assignment
        sizes = *spatial_shape(features), self.num_prototypes
        return ops.reshape(plan, (-1, *sizes))

    def adapt(
        self, features: Tensor, *, max_features: int = 20_000, seed: int = 0
    ) -> None:
        """Initializes the prototypes with features that cover the data.

        Optional, before training. Greedy k-center on the unit ball, starting
        with the feature farthest from the mean, among at most `max_features`
        local features of (batch, height, width, channels) or (batch, tokens,
        channels), drawn with the `seed`. Raises `ValueError` for fewer of them
        than prototypes.
        """
        features = self._matched(self.as_features(features))
        self.prototypes.assign(
            prototype_cover(features, self.num_prototypes, max_features, seed)
        )

    @property
    def ratio(self) -> float | Tensor:
        """The fraction of mass that is moved, learned or fixed."""
        if not self.learn_ratio:
            return self.transport_ratio
        return ops.sigmoid(ops.convert_to_tensor(self.ratio_logit))

    def compute_output_shape(
        self, features_shape: tuple, values_shape: tuple | None = None
    ) -> tuple:
        """Returns (batch, channels), and the histogram's shape if returned."""
        pooled = super().compute_output_shape(values_shape or features_shape)
        if not self.return_histogram:
            return pooled
        return pooled, (features_shape[0], self.num_prototypes)

    def compute_mask(
        self, inputs: Tensor, mask: Tensor | None = None
    ) -> tuple | None:
        return (None, None) if self.return_histogram else None

    def _transport(self, features, mask) -> BallTransport:
        check_mask(features, mask)
        flat = zero_where_masked(flat_features(features), mask)
        return ball_transport(
            self._matched(flat),
            ops.convert_to_tensor(self.prototypes),
            transport_ratio=self.ratio,
            inverse_temperature=self.inverse_temperature,
            mask=mask,
            log_odds=self.ratio_logit if self.learn_ratio else None,
        )

    def _matched(self, features):
        """What is compared with the prototypes."""
        if not self.use_affine_costs:
            return features
        # Not folded into the prototypes: |A f + b| would need a product of the
        # same size, and lose digits.
        kernel = ops.convert_to_tensor(self.matching_kernel)
        mapped = full_matmul(at_least_float32(features), kernel)
        return mapped + self.matching_bias

    def _pool(self, flat, weights, mask):
        """sum_j v_j f_j, or the generalized mean of n v_j f_j."""
        kept = kept_from_mask(mask, flat.dtype)
        if self.power == 1.0:
            pooled = full_matmul(ops.expand_dims(weights, 1), flat)[:, 0]
        else:
            count = kept_features(weights, mask)
            scaled = ops.expand_dims(weights * count, -1) * flat
            pooled = generalized_mean(scaled, power_of(self), kept=kept)
        if self.add_max:
            pooled = pooled + masked_max(flat, kept)
        return zero_where_empty(pooled, mask)
