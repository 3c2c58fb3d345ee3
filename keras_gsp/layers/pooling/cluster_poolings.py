"""Poolings that concatenate one vector per cluster: NetVLAD, SALAD, OTK."""

import math
from typing import Any

from keras import ops

from keras_gsp._checks import check_count, check_positive, require
from keras_gsp._tensor import Tensor
from keras_gsp.layers.pooling.feature_pooling import (
    FeaturePooling,
    flat_features,
    num_features,
)
from keras_gsp.ops.covering import prototype_cover
from keras_gsp.ops.distances import pairwise_distances
from keras_gsp.ops.masked_reductions import num_kept
from keras_gsp.ops.normalization import unit_sphere
from keras_gsp.ops.precision import at_least_float32, full_matmul

# Logarithm of the mass of a masked feature.
_NO_MASS = -1e9
_TOO_FEW = "There must be more features than clusters."


class _ClusterPooling(FeaturePooling):
    """Base with a linear map of the features; `num_vectors` are pooled."""

    num_vectors: int

    def __init__(self, *, projection_size, **kwargs):
        super().__init__(**kwargs)
        check_count(projection_size=projection_size, is_optional=True)
        self.projection_size = projection_size

    def create_projection(self, channels):
        """Creates the map, if any, and returns the size of what it gives."""
        if self.projection_size is None:
            return channels
        shape = channels, self.projection_size
        self.projection = self.full_precision_weight("projection", shape)
        return self.projection_size

    def projected(self, features):
        """Returns mapped features."""
        if self.projection_size is None:
            return features
        return ops.matmul(features, self.projection)

    def concatenated(self, vectors):
        """Returns (batch, num_vectors, size) as (batch, -1)."""
        return ops.reshape(vectors, (-1, self.num_vectors * vectors.shape[-1]))

    def output_size(self, channels):
        return self.num_vectors * (self.projection_size or channels)


class NetVLADPooling(_ClusterPooling):
    r"""Sums the residuals of softly assigned features for each cluster.

    .. math:: a_{jk} = \frac{e^{w_k \cdot f_j + b_k}}
        {\sum_l e^{w_l \cdot f_j + b_l}}, \qquad
        V_k = \sum_j a_{jk} (f_j - c_k), \qquad
        \text{pooled} = \left[ \frac{V_1}{|V_1|}, \dots,
        \frac{V_m}{|V_m|} \right]

    Args:
        num_clusters: m, at least 1. Default 64.
        projection_size: output size of a linear map of the features, without
            bias; replaces the channels. Default `None`: no map. The GSP paper
            compares 8 clusters with size 16 and 64 with size 128.

    Output shape: (batch, num_clusters * channels). Otherwise see
    `FeaturePooling`.

    Example:
        ```python
        pooling = gsp.layers.NetVLADPooling(8, projection_size=16)
        assert pooling(np.ones((2, 7, 7, 32))).shape == (2, 128)
        ```

    Reference:
        NetVLAD: CNN Architecture for Weakly Supervised Place Recognition, (4).
        Unlike its code, and as in the comparison of the GSP paper, features
        are not normalized first and the assignment starts at random.
    """

    def __init__(
        self,
        num_clusters: int = 64,
        *,
        projection_size: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(projection_size=projection_size, **kwargs)
        check_count(num_clusters=num_clusters)
        self.num_clusters = self.num_vectors = num_clusters

    def create_weights(self, channels: int, input_shape: tuple) -> None:
        size = self.create_projection(channels)
        self.create_dense("assignment", size, self.num_clusters)
        self.centers = self.full_precision_weight(
            "centers", (self.num_clusters, size)
        )

    def pool(self, features: Tensor, kept: Tensor) -> Tensor:
        features = self.projected(features)
        shares = ops.softmax(self.dense("assignment", features), axis=-1)
        if kept is not None:
            shares = kept[..., None] * shares
        # sum_j a_jk (f_j - c_k), without storing a residual for each pair.
        sums = full_matmul(ops.swapaxes(shares, 1, 2), features)
        masses = ops.sum(shares, axis=1)[..., None]
        residuals = sums - masses * ops.convert_to_tensor(self.centers)
        return self.concatenated(unit_sphere(residuals))


class OptimalTransportPooling(_ClusterPooling):
    r"""Assigns features to clusters and a dustbin by optimal transport (SALAD).

    Each of n features has mass 1; each of m clusters receives 1 and the
    dustbin n - m. Sinkhorn's iteration scales the m + 1 scores of each
    feature, :math:`S_{\cdot j} = V [U f_j + u]_+` (the last one is the
    dustbin's), to a plan P with these sums;

    .. math:: V_k = \sum_j P_{kj} W f_j, \qquad
        \text{pooled} = \left[ \frac{V_1}{|V_1|}, \dots,
        \frac{V_m}{|V_m|} \right] .

    GSP drops a share of the mass where this drops a number of features.

    Args:
        num_clusters: m, at least 1. Default 16. There must be more features
            than clusters, also under a mask.
        projection_size: rows of W; replaces the channels. Default `None`: no W.
        hidden_size: rows of U, at least 1. Default 512.
        num_iterations: Sinkhorn iterations, at least 1. Default 3.

    Output shape: (batch, num_clusters * channels). Otherwise see
    `FeaturePooling`.

    Example:
        ```python
        pooling = gsp.layers.OptimalTransportPooling(4, projection_size=8)
        assert pooling(np.random.normal(size=(2, 7, 7, 32))).shape == (2, 32)
        ```

    Reference:
        Optimal Transport Aggregation for Visual Place Recognition (SALAD),
        (3) to (8), there with 64 clusters x 128. The paper learns one dustbin
        score for all features, which the scaling divides out again; here the
        dustbin scores each feature. Without dropout and the global token
        (`build_encoder(..., prefix="concatenate")`); W is one layer, not two.
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
        super().__init__(projection_size=projection_size, **kwargs)
        check_count(
            num_clusters=num_clusters,
            hidden_size=hidden_size,
            num_iterations=num_iterations,
        )
        self.num_clusters = self.num_vectors = num_clusters
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
        self.create_projection(channels)
        size = self.hidden_size
        self.create_dense("hidden", channels, size)
        # The row scaling would divide out a bias.
        self.create_dense("score", size, self.num_clusters + 1, use_bias=False)

    def pool(self, features: Tensor, kept: Tensor) -> Tensor:
        plan = self._plan(features, kept)
        received = full_matmul(plan, self.projected(features))
        return self.concatenated(unit_sphere(received))

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
        masses = row_masses, ops.zeros_like(scores[:, 0])
        plan = _sinkhorn_plan(scores, *masses, kept, self.num_iterations)
        return plan[:, :-1]


class OTKPooling(_ClusterPooling):
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
            that paper's code; GSP's is for another problem.
        num_iterations: Sinkhorn iterations, at least 1. Default 10, as in
            that code.

    Output shape: (batch, num_references * channels). Otherwise see
    `FeaturePooling`.

    Example:
        ```python
        pooling = gsp.layers.OTKPooling(8, projection_size=16)
        assert pooling(np.random.normal(size=(2, 7, 7, 32))).shape == (2, 128)
        ```

    Reference:
        A Trainable Optimal Transport Embedding for Feature Aggregation, (3)
        and (4), with the features as their kernel embedding; (P4) and (B.1)
        of Generalized Sum Pooling for Metric Learning. As in the latter's code,
        the norm of a feature changes the pooled vector but not the plan.
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
        super().__init__(projection_size=projection_size, **kwargs)
        check_count(
            num_references=num_references, num_iterations=num_iterations
        )
        check_positive(inverse_temperature=inverse_temperature)
        self.num_references = self.num_vectors = num_references
        self.inverse_temperature = inverse_temperature
        self.num_iterations = num_iterations

    def create_weights(self, channels: int, input_shape: tuple) -> None:
        size = self.create_projection(channels)
        self.references = self.full_precision_weight(
            "references", (self.num_references, size)
        )

    def pool(self, features: Tensor, kept: Tensor) -> Tensor:
        features = self.projected(features)
        costs = pairwise_distances(
            unit_sphere(ops.convert_to_tensor(self.references)),
            unit_sphere(features),
        )
        count = num_kept(features, kept)
        row_masses = ops.full_like(
            costs[..., 0], -math.log(self.num_references)
        )
        masses = row_masses, -ops.log(count) * ops.ones_like(costs[:, 0])
        scores = -self.inverse_temperature * costs
        plan = _sinkhorn_plan(scores, *masses, kept, self.num_iterations)
        received = full_matmul(plan, features)
        return self.concatenated(received * self.num_references**0.5)

    def adapt(
        self, features: Tensor, *, max_features: int = 20_000, seed: int = 0
    ) -> None:
        """Initializes the references with features that cover the data.

        On the unit sphere, after the projection; see
        `GeneralizedSumPooling.adapt`.
        """
        flat = at_least_float32(flat_features(self.as_features(features)))
        inside = unit_sphere(self.projected(flat))
        self.references.assign(
            prototype_cover(inside, self.num_references, max_features, seed)
        )


def _sinkhorn_plan(
    scores: Tensor,
    log_row_masses: Tensor,
    log_column_masses: Tensor,
    kept: Tensor | None,
    num_iterations: int,
) -> Tensor:
    r"""Computes the entropic transport plan of scores with given marginals.

    S are `scores` (negative costs times the inverse temperature), p and q the
    row and column masses, u and v the logarithms of the scalings.

    .. math:: u_i = \log p_i - \log \sum_j e^{S_{ij} + v_j}, \quad
              v_j = \log q_j - \log \sum_i e^{S_{ij} + u_i}

    Scores and plan are (batch, rows, columns), the masses broadcast to
    (batch, rows) and (batch, columns); columns that are not `kept` have none.
    Columns sum to their masses, rows converge to theirs. In the log domain no
    score over- or underflows. The gradient is that of the iterations.

    Reference:
        Sinkhorn Distances: Lightspeed Computation of Optimal Transport.
    """
    scores = ops.convert_to_tensor(scores)
    log_rows = ops.cast(log_row_masses, scores.dtype)[..., :, None]
    log_columns = ops.cast(log_column_masses, scores.dtype)
    if kept is not None:
        log_columns = ops.where(kept > 0.0, log_columns, _NO_MASS)
    log_columns = log_columns[..., None, :]
    # Start from the column masses, not from ones: a column without mass must
    # not enter the first row scaling. Equal masses cancel in it.
    scaled = scores + log_columns
    for _ in range(num_iterations):
        for logs, axis in ((log_rows, -1), (log_columns, -2)):
            total = ops.logsumexp(scaled, axis=axis, keepdims=True)
            scaled = scaled + logs - total
    return ops.exp(scaled)
