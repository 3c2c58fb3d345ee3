"""Generalized sum pooling: choose what to pool by partial transport."""

import keras
from keras import ops

from keras_gsp.layers.pooling.feature_shape import flat_features, spatial_shape
from keras_gsp.layers.pooling.prototype_cover import prototype_cover
from keras_gsp.ops.arguments import check_count
from keras_gsp.ops.ball_transport import ball_transport, kept_features
from keras_gsp.ops.generalized_mean import generalized_mean
from keras_gsp.ops.precision import at_least_float32
from keras_gsp.ops.selection import check_transport_ratio
from keras_gsp.ops.transport import check_inverse_temperature


@keras.saving.register_keras_serializable(package="keras_gsp")
class GeneralizedSumPooling(keras.layers.Layer):
    r"""Pools the features that are close to learnt prototypes, drops the rest.

    A drop-in replacement for global average pooling that learns to ignore
    background. Features :math:`f_j` and prototypes :math:`\omega_i`, both
    projected onto the unit ball, are matched by entropic partial transport
    with Euclidean costs: the fraction `transport_ratio` of the features' mass
    is moved to prototypes, the rest is discarded.

    .. math:: v_j = \frac{1/n - \rho_j}{\mu}, \qquad
              \text{pooled} = \sum_j v_j f_j, \qquad
              z_i = \frac{1}{\mu} \sum_j \pi_{ij}

    The pooling weights v and the histogram z sum to 1. With
    `transport_ratio=1` this is average pooling; towards 0 the weights become
    a softmax over the features. The transport problem is solved to rounding
    error by `keras_gsp.ops.partial_transport`'s solver, in float32 whatever
    the dtype policy, and differentiated in closed form.

    Args:
        num_prototypes: number of prototypes m, at least 1. Default 64.
        transport_ratio: fraction of mass that is pooled, in (0, 1]. Default
            0.3. Smaller suits images whose subject is small.
        inverse_temperature: sharpness of the transport, positive. Default
            5.0. Costs are distances in [0, 2].
        power: exponent of generalised-mean pooling applied to the weighted
            features, at least 1. Default 1.0, the weighted sum. Above 1,
            features are clipped below at 1e-6, as in GeM.
        return_histogram: whether a call also returns the histogram of mass
            over prototypes, which the zero-shot and cross-batch regularisers
            take. Default `False`.
        prototype_initializer: initialiser of the prototypes.
        prototype_regularizer: regulariser of the prototypes.
        **kwargs: `name`, `dtype` and other arguments of a Keras layer.

    Call arguments:
        features: (batch, height, width, channels) or (batch, tokens,
            channels).
        mask: optional boolean (batch, tokens), for 3-D features: a masked
            token gets weight 0 and the ratio is taken of the kept ones. An
            all-masked row is pooled to zeros.

    Input shape:
        (batch, height, width, channels) or (batch, tokens, channels); batch
        and spatial sizes may be unknown.

    Output shape:
        (batch, channels), and with `return_histogram=True` a second output
        (batch, num_prototypes) in float32 or float64.

    Raises:
        ValueError: an argument outside its range, features of another rank,
            unknown channels.

    Example:

    ```python
    model = keras.Sequential([keras.Input((7, 7, 16))])
    model.add(gsp.layers.GeneralizedSumPooling(8, transport_ratio=0.3))
    features = np.random.default_rng(0).normal(size=(2, 7, 7, 16))
    assert model(features).shape == (2, 16)
    ```

    Reference:
        Generalized Sum Pooling for Metric Learning, (P2), (4.2), (4.3);
        GeM + GSP: appendix. Unlike the reference code, the solver does not
        stop after a number of projections: the weights always sum to 1.
    """

    def __init__(
        self,
        num_prototypes=64,
        transport_ratio=0.3,
        inverse_temperature=5.0,
        *,
        power=1.0,
        return_histogram=False,
        prototype_initializer="glorot_uniform",
        prototype_regularizer=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_count(num_prototypes=num_prototypes)
        if not power >= 1.0:
            raise ValueError(
                f"`power` must be at least 1. Received: power={power}."
            )
        self.num_prototypes = num_prototypes
        self.transport_ratio = check_transport_ratio(transport_ratio)
        self.inverse_temperature = check_inverse_temperature(
            inverse_temperature
        )
        self.power = power
        self.return_histogram = return_histogram
        self.prototype_initializer = keras.initializers.get(
            prototype_initializer
        )
        self.prototype_regularizer = keras.regularizers.get(
            prototype_regularizer
        )
        self.supports_masking = True

    def build(self, input_shape):
        """Creates the prototypes, (num_prototypes, channels)."""
        spatial_shape(input_shape)
        if input_shape[-1] is None:
            raise ValueError(
                "The channels of the features must be known. "
                f"Received: input_shape={tuple(input_shape)}."
            )
        self.prototypes = self.add_weight(
            name="prototypes",
            shape=(self.num_prototypes, input_shape[-1]),
            initializer=self.prototype_initializer,
            regularizer=self.prototype_regularizer,
            # Costs rounded to half precision move the weights visibly.
            autocast=False,
        )

    def call(self, features, mask=None):
        """Pools features; see the class."""
        weights, assignment = self._transport(features, mask)
        flat = at_least_float32(flat_features(features))
        pooled = ops.cast(self._pool(flat, weights, mask), self.compute_dtype)
        if not self.return_histogram:
            return pooled
        histogram = ops.matmul(ops.expand_dims(weights, 1), assignment)[:, 0]
        return pooled, histogram

    def pooling_weights(self, features, mask=None):
        """Returns how much each feature of a call counts, as a map.

        Returns:
            (batch, height, width) or (batch, tokens); each map sums to 1.
        """
        features = self._as_features(features)
        weights, _ = self._transport(features, mask)
        return ops.reshape(weights, (-1, *spatial_shape(features)))

    def transport_plan(self, features, mask=None):
        """Returns the mass a call moves from each feature to each prototype.

        Returns:
            (batch, height, width, num_prototypes) or (batch, tokens,
            num_prototypes); each plan sums to `transport_ratio`.
        """
        features = self._as_features(features)
        weights, assignment = self._transport(features, mask)
        plan = self.transport_ratio * weights[..., None] * assignment
        return ops.reshape(
            plan, (-1, *spatial_shape(features), self.num_prototypes)
        )

    def adapt(self, features, *, max_features=20_000, seed=0):
        """Sets the prototypes to features that cover the data.

        Greedy k-centre on the unit ball, starting with the feature farthest
        from the mean. Optional; training starts from data instead of noise.

        Args:
            features: (batch, height, width, channels) or (batch, tokens,
                channels), as the layer will see them.
            max_features: number of local features looked at, drawn without
                replacement, at least `num_prototypes`. Default 20,000.
            seed: integer seed of that draw. Default 0.

        Raises:
            ValueError: fewer local features than prototypes.
        """
        features = self._as_features(features)
        self.prototypes.assign(
            prototype_cover(
                features,
                self.num_prototypes,
                max_features=max_features,
                seed=seed,
            )
        )

    def compute_output_shape(self, input_shape):
        """Returns (batch, channels), with the histogram's shape if asked."""
        spatial_shape(input_shape)
        pooled = (input_shape[0], input_shape[-1])
        if not self.return_histogram:
            return pooled
        return pooled, (input_shape[0], self.num_prototypes)

    def compute_mask(self, inputs, mask=None):
        """Returns no mask: the tokens are gone."""
        return (None, None) if self.return_histogram else None

    def get_config(self):
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "num_prototypes": self.num_prototypes,
            "transport_ratio": self.transport_ratio,
            "inverse_temperature": self.inverse_temperature,
            "power": self.power,
            "return_histogram": self.return_histogram,
            "prototype_initializer": keras.initializers.serialize(
                self.prototype_initializer
            ),
            "prototype_regularizer": keras.regularizers.serialize(
                self.prototype_regularizer
            ),
        }

    def _as_features(self, features):
        features = ops.convert_to_tensor(features)
        if not self.built:
            self.build(features.shape)
        return features

    def _transport(self, features, mask):
        return ball_transport(
            flat_features(features),
            ops.convert_to_tensor(self.prototypes),
            transport_ratio=self.transport_ratio,
            inverse_temperature=self.inverse_temperature,
            mask=mask,
        )

    def _pool(self, flat, weights, mask):
        """The weighted sum, or its generalised mean, (batch, channels)."""
        if self.power == 1.0:
            return ops.matmul(ops.expand_dims(weights, 1), flat)[:, 0]
        count = kept_features(weights, mask)
        scaled = ops.expand_dims(weights * count, -1) * flat
        kept = None if mask is None else ops.cast(mask, flat.dtype)
        return generalized_mean(scaled, self.power, kept=kept)
