"""The contender of `GeneralizedSumPooling`: the paper's own solver."""

import keras
from keras import ops

import keras_gsp as gsp
from training.experiments.paper_iteration import iterated_transport


class IteratedSumPooling(keras.layers.Layer):
    """Sum pooling by a fixed number of the paper's rounds, with autodiff.

    Everything but the solver is as in `GeneralizedSumPooling`.

    Args:
        num_prototypes: number of prototypes.
        num_rounds: rounds of the iteration; 100 in the paper.
        transport_ratio: fraction of mass that is pooled.
        inverse_temperature: sharpness of the transport.
        **kwargs: of `keras.layers.Layer`.
    """

    def __init__(
        self,
        num_prototypes,
        *,
        num_rounds=100,
        transport_ratio=0.3,
        inverse_temperature=5.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_prototypes = num_prototypes
        self.num_rounds = num_rounds
        self.transport_ratio = transport_ratio
        self.inverse_temperature = inverse_temperature

    def build(self, input_shape):
        """Creates the prototypes."""
        self.prototypes = self.add_weight(
            name="prototypes",
            shape=(self.num_prototypes, input_shape[-1]),
            initializer="glorot_uniform",
            autocast=False,
        )

    def call(self, features):
        """Returns (batch, channels)."""
        batch, height, width, channels = features.shape
        flat = ops.reshape(features, (batch, height * width, channels))
        flat = ops.cast(flat, "float32")
        prototypes = ops.convert_to_tensor(self.prototypes)
        costs = gsp.ops.pairwise_distances(
            gsp.ops.unit_ball(prototypes), gsp.ops.unit_ball(flat)
        )
        residual, _ = iterated_transport(
            costs,
            transport_ratio=self.transport_ratio,
            inverse_temperature=self.inverse_temperature,
            num_rounds=self.num_rounds,
        )
        weights = (1.0 / (height * width) - residual) / self.transport_ratio
        pooled = ops.matmul(weights[:, None, :], flat)[:, 0]
        return ops.cast(pooled, self.compute_dtype)
