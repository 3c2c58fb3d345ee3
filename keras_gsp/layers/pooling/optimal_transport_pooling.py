"""Optimal-transport aggregation with a dustbin (SALAD)."""

from typing import Any

import keras
from keras import ops

from keras_gsp.layers.pooling.feature_pooling import (
    FeaturePooling,
    num_features,
)
from keras_gsp.ops.arguments import check_count
from keras_gsp.ops.masked_reductions import num_kept
from keras_gsp.ops.normalization import unit_sphere
from keras_gsp.ops.precision import full_matmul
from keras_gsp.ops.preconditions import require
from keras_gsp.ops.sinkhorn import sinkhorn_plan
from keras_gsp.ops.tensor import Tensor

# Logarithm of the mass of a masked feature.
_NO_MASS = -1e9
_TOO_FEW = "There must be more features than clusters."


@keras.saving.register_keras_serializable(package="keras_gsp")
class OptimalTransportPooling(FeaturePooling):
    r"""Assigns features to clusters and a dustbin by optimal transport.

    Each of n features has mass 1; each of m clusters receives 1 and the
    dustbin n - m. Sinkhorn's iteration scales the m + 1 scores of each
    feature, :math:`S_{\cdot j} = V [U f_j + u]_+` (the last one is the
    dustbin's), to a plan P with these sums;

    .. math:: V_k = \sum_j P_{kj} W f_j, \qquad
        \text{pooled} = \left[ \frac{V_1}{|V_1|}, \dots,
        \frac{V_m}{|V_m|} \right] .

    GSP drops a fixed share of the mass where this drops a fixed number of
    features, and sums over prototypes where this concatenates clusters.

    Args:
        num_clusters: m, at least 1. Default 16. There must be more features
            than clusters, also under a mask.
        projection_size: rows of W; replaces the channels. Default `None`: no W.
        hidden_size: rows of U, at least 1. Default 512.
        num_iterations: Sinkhorn iterations, at least 1. Default 3.

    Input shape: (batch, height, width, channels) or (batch, tokens, channels).
    Output shape: (batch, num_clusters * channels).
    Mask and errors: see `FeaturePooling`.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    pooling = gsp.layers.OptimalTransportPooling(4, projection_size=8)
    features = np.random.default_rng(0).normal(size=(2, 7, 7, 32))
    assert pooling(features).shape == (2, 32)
    ```

    Reference:
        Optimal Transport Aggregation for Visual Place Recognition (SALAD),
        (3) to (8), there with 64 clusters x 128. The paper learns one dustbin
        score for all features, which the scaling of the dustbin's row divides
        out again; here the dustbin scores each feature, as the clusters do.
        Dropout and the global token (`build_encoder(...,
        prefix="concatenate")`) are left out, and W is one layer, not two.
    """

    def __init__(
        self,
        num_clusters: int = 16,
        *,
        projection_size: int | None = None,
        hidden_size: int = 512,
        num_iterations: int = 3,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_count(
            num_clusters=num_clusters,
            hidden_size=hidden_size,
            num_iterations=num_iterations,
        )
        check_count(projection_size=projection_size, is_optional=True)
        self.num_clusters = num_clusters
        self.projection_size = projection_size
        self.hidden_size = hidden_size
        self.num_iterations = num_iterations

    def check_size(self, input_shape: tuple) -> None:
        """Raises `ValueError` for no more features than clusters."""
        count = num_features(input_shape)
        if count is not None and count <= self.num_clusters:
            raise ValueError(
                f"{_TOO_FEW} Received: {count} features, "
                f"num_clusters={self.num_clusters}."
            )

    def create_weights(self, channels: int, input_shape: tuple) -> None:
        """Creates the scores' two layers and the projection."""
        if self.projection_size is not None:
            self.projection = self.full_precision_weight(
                "projection", (channels, self.projection_size)
            )
        size = self.hidden_size
        self.create_dense("hidden", channels, size)
        # The row scaling would divide out a bias.
        self.create_dense("score", size, self.num_clusters + 1, use_bias=False)

    def pool(self, features: Tensor, kept: Tensor) -> Tensor:
        """Returns the vectors of all clusters, concatenated."""
        plan = self._plan(features, kept)
        if self.projection_size is not None:
            features = ops.matmul(features, self.projection)
        received = full_matmul(plan, features)
        size = self.num_clusters * features.shape[-1]
        return ops.reshape(unit_sphere(received), (-1, size))

    def output_size(self, channels: int) -> int:
        """Returns clusters times the size of a feature."""
        return self.num_clusters * (self.projection_size or channels)

    def _plan(self, features, kept):
        """Mass from features to clusters, (batch, clusters, features)."""
        scores = self.dense("score", ops.relu(self.dense("hidden", features)))
        scores = ops.swapaxes(scores, 1, 2)
        count = num_kept(features, kept) * ops.ones_like(scores[:, :1, 0])
        if kept is None and features.shape[1] is not None:
            self.check_size(features.shape)
        else:
            count = require(
                count,
                ops.all(count > self.num_clusters),
                _TOO_FEW,
                num_features=ops.min(count),
                num_clusters=self.num_clusters,
            )
        # Under XLA, which cannot raise, a dustbin of 1 keeps it finite.
        rest = ops.log(ops.maximum(count - self.num_clusters, 1.0))
        row_masses = ops.concatenate(
            [ops.zeros_like(scores[:, :-1, 0]), rest], axis=1
        )
        column_masses = ops.zeros_like(scores[:, 0])
        if kept is not None:
            column_masses = ops.where(kept > 0.0, column_masses, _NO_MASS)
        return sinkhorn_plan(
            scores,
            row_masses,
            column_masses,
            num_iterations=self.num_iterations,
        )[:, :-1]
