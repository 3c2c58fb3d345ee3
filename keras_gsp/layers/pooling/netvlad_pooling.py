"""NetVLAD pooling: residuals between features and cluster centers."""

from typing import Any

import keras
from keras import ops

from keras_gsp.layers.pooling.feature_pooling import FeaturePooling
from keras_gsp.ops.arguments import check_count
from keras_gsp.ops.normalization import unit_sphere
from keras_gsp.ops.precision import full_matmul
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class NetVLADPooling(FeaturePooling):
    r"""Sums the residuals of softly assigned features for each cluster.

    .. math:: a_{jk} = \frac{e^{w_k \cdot f_j + b_k}}
        {\sum_l e^{w_l \cdot f_j + b_l}}, \qquad
        V_k = \sum_j a_{jk} (f_j - c_k), \qquad
        \text{pooled} = \left[ \frac{V_1}{|V_1|}, \dots,
        \frac{V_m}{|V_m|} \right]

    Each cluster's vector has norm 1 (intra-normalization), the whole vector
    :math:`\sqrt m`.

    Args:
        num_clusters: m, at least 1. Default 64.
        projection_size: output size of a linear map of the features, without
            bias; replaces the channels. Default `None`: no map. The GSP paper
            compares 8 clusters with size 16 and 64 with size 128.

    Input shape: (batch, height, width, channels) or (batch, tokens, channels).
    Output shape: (batch, num_clusters * channels).
    Mask and errors: see `FeaturePooling`.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    pooling = gsp.layers.NetVLADPooling(8, projection_size=16)
    assert pooling(np.ones((2, 7, 7, 32), "float32")).shape == (2, 128)
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
        super().__init__(**kwargs)
        check_count(num_clusters=num_clusters)
        check_count(projection_size=projection_size, is_optional=True)
        self.num_clusters = num_clusters
        self.projection_size = projection_size

    def create_weights(self, channels: int, input_shape: tuple) -> None:
        """Creates the projection, the assignment and the centers."""
        size = self.projection_size or channels
        if self.projection_size is not None:
            self.projection = self.full_precision_weight(
                "projection", (channels, size)
            )
        self.create_dense("assignment", size, self.num_clusters)
        self.centers = self.full_precision_weight(
            "centers", (self.num_clusters, size)
        )

    def pool(self, features: Tensor, kept: Tensor) -> Tensor:
        """Returns the normalized residuals of all clusters, concatenated."""
        if self.projection_size is not None:
            features = ops.matmul(features, self.projection)
        shares = ops.softmax(self.dense("assignment", features), axis=-1)
        if kept is not None:
            shares = kept[..., None] * shares
        # sum_j a_jk (f_j - c_k), without storing a residual for each pair.
        sums = full_matmul(ops.swapaxes(shares, 1, 2), features)
        masses = ops.sum(shares, axis=1)[..., None]
        residuals = sums - masses * ops.convert_to_tensor(self.centers)
        size = self.num_clusters * features.shape[-1]
        return ops.reshape(unit_sphere(residuals), (-1, size))

    def output_size(self, channels: int) -> int:
        """Returns clusters times the size of a feature."""
        return self.num_clusters * (self.projection_size or channels)
