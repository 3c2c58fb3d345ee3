"""OTK: features shared out among references by optimal transport."""

import math
from typing import Any

import keras
from keras import ops

from keras_gsp.layers.pooling.feature_pooling import (
    FeaturePooling,
    flat_features,
)
from keras_gsp.ops.arguments import check_count, check_positive_finite
from keras_gsp.ops.covering import prototype_cover
from keras_gsp.ops.distances import pairwise_distances
from keras_gsp.ops.masked_reductions import num_kept
from keras_gsp.ops.normalization import unit_sphere
from keras_gsp.ops.precision import at_least_float32
from keras_gsp.ops.sinkhorn import sinkhorn_plan
from keras_gsp.ops.tensor import Tensor

# The logarithm of the mass of a masked feature.
_NO_MASS = -1e9


@keras.saving.register_keras_serializable(package="keras_gsp")
class OTKPooling(FeaturePooling):
    r"""Pools one vector for each reference, all references equally served.

    The plan :math:`\pi` moves every feature's mass 1 / n to m learned
    references, each of which receives 1 / m, at least entropic cost:

    .. math:: \min_{\pi \ge 0} \sum_{ij} c_{ij} \pi_{ij} +
        \frac{1}{\varepsilon} \sum_{ij} \pi_{ij} \log \pi_{ij}
        \quad \text{s.t.} \quad \sum_i \pi_{ij} = \frac{1}{n}, \quad
        \sum_j \pi_{ij} = \frac{1}{m}, \qquad
        g_i = \sqrt m \sum_j \pi_{ij} f_j

    with :math:`c_{ij}` the distance between reference and feature on the
    unit sphere. The pooled vector is :math:`[g_1, \dots, g_m]`. No feature is
    left out; what GSP leaves out is what sets it apart.

    Args:
        num_references: m, at least 1. Default 64.
        projection_size: size that features are linearly mapped to first,
            without bias; `None`, the default, leaves them. The sizes of the
            metric learning comparison are `OTKPooling(8,
            projection_size=16)` and `OTKPooling(64, projection_size=128)`.
        inverse_temperature: epsilon, positive and finite. Default 2.0.
        num_iterations: rounds of Sinkhorn's scaling, at least 1. Default 10.
        **kwargs: `name`, `dtype` and other arguments of a Keras layer.

    Call arguments:
        features: see input shape.
        mask: optional boolean (batch, tokens), with tokens only.

    Input shape:
        (batch, height, width, channels) or (batch, tokens, channels).

    Output shape:
        (batch, num_references * channels), or (batch, num_references *
        projection_size).

    Raises:
        ValueError: an argument outside its range, features of another rank,
            unknown channels, a mask on a feature map.

    Example:

    ```python
    pooling = gsp.layers.OTKPooling(8, projection_size=16)
    features = np.random.default_rng(0).normal(size=(2, 7, 7, 32))
    assert pooling(features).shape == (2, 128)
    ```

    Reference:
        A Trainable Optimal Transport Embedding for Feature Aggregation, (3)
        and (4), with the features themselves as their kernel embedding; (P4)
        and (B.1) of Generalized Sum Pooling for Metric Learning. The former
        paper measures similarity by a Gaussian kernel of vectors as they are;
        here, as in the code of the latter, costs are distances after
        references and features are projected onto the unit sphere, so that
        the length of a feature counts in what is pooled, not in where it
        goes. The defaults of `inverse_temperature` and `num_iterations` are
        that code's too; the former paper tunes both. Sinkhorn's scaling runs
        in the logarithmic domain; `adapt` starts the references from
        features, as the comparison starts them from a memory of some.
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
        check_positive_finite(inverse_temperature=inverse_temperature)
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
        """Returns what each reference receives, one after the other."""
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
        received = ops.matmul(plan, features) * self.num_references**0.5
        size = self.num_references * features.shape[-1]
        return ops.reshape(received, (-1, size))

    def adapt(
        self, features: Tensor, *, max_features: int = 20_000, seed: int = 0
    ) -> None:
        """Sets the references to features that cover the data.

        Greedy k-center on the unit sphere, behind the projection; see
        `GeneralizedSumPooling.adapt`.

        Args:
            features: (batch, height, width, channels) or (batch, tokens,
                channels), as the layer will see them.
            max_features: number of local features looked at, drawn without
                replacement, at least `num_references`. Default 20,000.
            seed: integer seed of that draw. Default 0.

        Raises:
            ValueError: fewer local features than references.
        """
        features = ops.convert_to_tensor(features)
        if not self.built:
            self.build(features.shape)
        flat = at_least_float32(flat_features(features))
        self.references.assign(
            prototype_cover(
                unit_sphere(self._projected(flat)),
                self.num_references,
                max_features=max_features,
                seed=seed,
            )
        )

    def output_size(self, channels: int) -> int:
        """Returns references times the size of a feature."""
        return self.num_references * (self.projection_size or channels)

    def get_config(self) -> dict:
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "num_references": self.num_references,
            "projection_size": self.projection_size,
            "inverse_temperature": self.inverse_temperature,
            "num_iterations": self.num_iterations,
        }

    def _projected(self, features):
        if self.projection_size is None:
            return features
        return ops.matmul(features, self.projection)
