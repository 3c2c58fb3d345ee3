"""The contender of `GeneralizedSumPooling`: the paper's own solver."""

from typing import Any

import keras
from keras import ops

import keras_gsp as gsp
from keras_gsp.ops.covering import prototype_cover
from training.research.experiments.paper_iteration import (
    iterated_transport,
    iterated_transport_in_closed_form,
)


class IteratedSumPooling(keras.layers.Layer):
    """Sum pooling by a fixed number of the paper's rounds.

    Everything but the solver is as in `GeneralizedSumPooling`.

    Args:
        num_prototypes: number of prototypes.
        num_rounds: rounds of the iteration; 100 in the paper.
        transport_ratio: fraction of mass that is pooled.
        inverse_temperature: sharpness of the transport.
        is_closed_form: differentiate by the paper's closed form at the last
            iterate instead of through the rounds.
        **kwargs: of `keras.layers.Layer`.
    """

    def __init__(
        self,
        num_prototypes: int,
        *,
        num_rounds: int = 100,
        transport_ratio: float = 0.3,
        inverse_temperature: float = 5.0,
        is_closed_form: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_prototypes = num_prototypes
        self.num_rounds = num_rounds
        self.transport_ratio = transport_ratio
        self.inverse_temperature = inverse_temperature
        self.is_closed_form = is_closed_form

    def build(self, input_shape: tuple) -> None:
        """Creates the prototypes."""
        self.prototypes = self.add_weight(
            name="prototypes",
            shape=(self.num_prototypes, input_shape[-1]),
            initializer="glorot_uniform",
            autocast=False,
        )

    def call(self, features: Any) -> Any:
        """Returns (batch, channels)."""
        _, height, width, channels = features.shape
        flat = ops.reshape(features, (-1, height * width, channels))
        flat = ops.cast(flat, "float32")
        prototypes = ops.convert_to_tensor(self.prototypes)
        costs = gsp.ops.pairwise_distances(
            gsp.ops.unit_ball(prototypes), gsp.ops.unit_ball(flat)
        )
        options: dict[str, Any] = {
            "transport_ratio": self.transport_ratio,
            "inverse_temperature": self.inverse_temperature,
            "num_rounds": self.num_rounds,
        }
        if self.is_closed_form:
            joined = iterated_transport_in_closed_form(costs, **options)
            residual = joined[..., 0, :]
        else:
            residual, _ = iterated_transport(costs, **options)
        weights = (1.0 / (height * width) - residual) / self.transport_ratio
        pooled = ops.matmul(weights[:, None, :], flat)[:, 0]
        return ops.cast(pooled, self.compute_dtype)

    def adapt(
        self, features: Any, *, max_features: int = 20_000, seed: int = 0
    ) -> None:
        """Sets the prototypes as `GeneralizedSumPooling.adapt` does."""
        self.prototypes.assign(
            prototype_cover(
                features,
                self.num_prototypes,
                max_features=max_features,
                seed=seed,
            )
        )
