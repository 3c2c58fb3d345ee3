"""OTK pooling: features assigned to references by optimal transport."""

import math
from typing import Any

import keras
from keras import ops

from keras_gsp.layers.pooling.feature_pooling import (
    FeaturePooling,
    flat_features,
)
from keras_gsp.ops.arguments import check_count, check_positive
from keras_gsp.ops.covering import prototype_cover
from keras_gsp.ops.distances import pairwise_distances
from keras_gsp.ops.masked_reductions import num_kept
from keras_gsp.ops.normalization import unit_sphere
from keras_gsp.ops.precision import at_least_float32, full_matmul
from keras_gsp.ops.sinkhorn import sinkhorn_plan
from keras_gsp.ops.tensor import Tensor

# Logarithm of the mass of a masked feature.
_NO_MASS = -1e9


@keras.saving.register_keras_serializable(package="keras_gsp")
class OTKPooling(FeaturePooling):
    r"""Pools one vector for each learned reference by optimal transport.

    The plan :math:`\pi` moves each feature's mass 1 / n to m learned
    references, each of which receives 1 / m, at least entropic cost:

    .. math:: \min_{\pi \ge 0} \sum_{ij} c_{ij} \pi_{ij} +
        \frac{1}{\varepsilon} \sum_{ij} \pi_{ij} \log \pi_{ij}
        \quad \text{s.t.} \quad \sum_i \pi_{ij} = \frac{1}{n}, \quad
        \sum_j \pi_{ij} = \frac{1}{m}, \qquad
        g_i = \sqrt m \sum_j \pi_{ij} f_j

    with :math:`c_{ij}` the distance between reference and feature on the
    unit sphere. The pooled vector is :math:`[g_1, \dots, g_m]`. Unlike GSP, it
    drops no feature.

    Args:
        num_references: m, at least 1. Default 64.
        projection_size: output size of a linear map of the features, without
            bias; replaces the channels. Default `None`: no map. The GSP paper
            compares 8 references with size 16 and 64 with size 128.
        inverse_temperature: epsilon, positive and finite. Default 2.0, as in
            that paper's code. GSP's is for another problem, with costs in
            the unit ball.
        num_iterations: Sinkhorn iterations, at least 1. Default 10, as in
            that code.

    Input shape: (batch, height, width, channels) or (batch, tokens, channels).
    Output shape: (batch, num_references * channels).
    Mask and errors: see `FeaturePooling`.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    pooling = gsp.layers.OTKPooling(8, projection_size=16)
    features = np.random.default_rng(0).normal(size=(2, 7, 7, 32))
    assert pooling(features).shape == (2, 128)
    ```

    Reference:
        A Trainable Optimal Transport Embedding for Feature Aggregation, (3)
        and (4), with the features as their kernel embedding; (P4) and (B.1)
        of Generalized Sum Pooling for Metric Learning. The former uses a
        Gaussian kernel of unnormalized vectors; here, as in the code of the
        latter, the norm of a feature changes the pooled vector but not the
        plan.
    """

    def __init__(
        self,
        num_references: int = 64,
        *,
        projection_size: int | None = None,
        inverse_temperature: float = 2.0,
        num_iterations: int = 10,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_count(
            num_references=num_references, num_iterations=num_iterations
        )
        check_count(projection_size=projection_size, is_optional=True)
        check_positive(inverse_temperature=inverse_temperature)
        self.num_references = num_references
        self.projection_size = projection_size
        self.inverse_temperature = inverse_temperature
        self.num_iterations = num_iterations

    def create_weights(self, channels: int, input_shape: tuple) -> None:
        """Creates the projection and the references."""
        size = self.projection_size or channels
        if self.projection_size is not None:
            self.projection = self.full_precision_weight(
                "projection", (channels, size)
            )
        self.references = self.full_precision_weight(
            "references", (self.num_references, size)
        )

    def pool(self, features: Tensor, kept: Tensor) -> Tensor:
        """Returns the vectors of all references, concatenated."""
        features = self._projected(features)
        costs = pairwise_distances(
            unit_sphere(ops.convert_to_tensor(self.references)),
            unit_sphere(features),
        )
        count = num_kept(features, kept)
        log_masses = -ops.log(count) * ops.ones_like(costs[:, 0])
        if kept is not None:
            log_masses = ops.where(kept > 0.0, log_masses, _NO_MASS)
        row_masses = ops.full_like(
            costs[..., 0], -math.log(self.num_references)
        )
        plan = sinkhorn_plan(
            -self.inverse_temperature * costs,
            row_masses,
            log_masses,
            num_iterations=self.num_iterations,
        )
        received = full_matmul(plan, features) * self.num_references**0.5
        size = self.num_references * features.shape[-1]
        return ops.reshape(received, (-1, size))

    def adapt(
        self, features: Tensor, *, max_features: int = 20_000, seed: int = 0
    ) -> None:
        """Initializes the references with features that cover the data.

        Greedy k-center on the unit sphere, after the projection. For the
        arguments and errors see `GeneralizedSumPooling.adapt`.
        """
        features = ops.convert_to_tensor(features)
        if not self.built:
            self.build(features.shape)
        flat = at_least_float32(flat_features(features))
        inside = unit_sphere(self._projected(flat))
        self.references.assign(
            prototype_cover(inside, self.num_references, max_features, seed)
        )

    def output_size(self, channels: int) -> int:
        """Returns references times the size of a feature."""
        return self.num_references * (self.projection_size or channels)

    def _projected(self, features):
        if self.projection_size is None:
            return features
        return ops.matmul(features, self.projection)
