"""Histogram of an image's features over learned prototypes."""

from typing import Any

from keras import ops

from keras_gsp._checks import check_choice, check_count, check_positive
from keras_gsp._configured import ConfiguredLayer
from keras_gsp._tensor import Tensor
from keras_gsp.layers.pooling.feature_pooling import (
    flat_features,
    known_channels,
)
from keras_gsp.ops.covering import prototype_cover
from keras_gsp.ops.distances import pairwise_distances
from keras_gsp.ops.masked_reductions import (
    kept_from_mask,
    masked_mean,
    zero_where_empty,
    zero_where_masked,
)
from keras_gsp.ops.precision import at_least_float32, full_matmul


class PrototypeHistogram(ConfiguredLayer):
    """Computes the share of an image's features near each learned prototype.

    `z_i = mean_j softmax_i(inverse_temperature * s_ij)`,

    with `s_ij` the dot product of prototype i and feature j, or minus their
    Euclidean distance (not squared). An input of the regularizers for
    poolings other than GSP, whose histogram with `transport_ratio=1` equals
    this one with `affinity="l2"` in the unit ball. Features are not normalized
    here: `build_encoder` puts `EmbeddingNormalization("ball")` before this
    layer.

    Args:
        num_prototypes: int, at least 1. Default 64.
        inverse_temperature: float, positive. Default 10.0, as in the XML
            paper, for dot products in [-1, 1].
        affinity: `"dot"` (default), as in the paper, or `"l2"`. Lemma 2.1 of
            the paper needs `"l2"` or prototypes of equal norm.

    Call arguments:
        features: (batch, height, width, channels) or (batch, tokens,
            channels); all sizes but the channels may be unknown.
        mask: (batch, tokens) or (batch, height, width), boolean, the features
            that count. Default `None`: the Keras mask of the features, if any.

    Output shape:
        (batch, num_prototypes), float32 at least. Rows sum to 1; an all-masked
        row is zero.

    Example:
        ```python
        layer = gsp.layers.PrototypeHistogram(8)
        histograms = layer(np.random.normal(size=(2, 7, 7, 16)))  # (2, 8)
        ```

    Reference:
        XML, (2.4).
    """

    def __init__(
        self,
        num_prototypes: int = 64,
        inverse_temperature: float = 10.0,
        *,
        affinity: str = "dot",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_count(num_prototypes=num_prototypes)
        check_positive(inverse_temperature=inverse_temperature)
        check_choice("dot", "l2", affinity=affinity)
        self.num_prototypes = num_prototypes
        self.inverse_temperature = inverse_temperature
        self.affinity = affinity
        self.supports_masking = True

    def build(self, input_shape: tuple) -> None:
        """Creates the prototypes, (num_prototypes, channels)."""
        self.prototypes = self.add_weight(
            name="prototypes",
            shape=(self.num_prototypes, known_channels(input_shape)),
            initializer="glorot_uniform",
            autocast=False,
        )

    def call(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        features = zero_where_masked(at_least_float32(features), mask)
        features = flat_features(features)
        prototypes = ops.cast(self.prototypes, features.dtype)
        if self.affinity == "l2":
            affinities = -pairwise_distances(features, prototypes)
        else:
            affinities = full_matmul(features, ops.transpose(prototypes))
        shares = ops.softmax(self.inverse_temperature * affinities, axis=-1)
        if mask is not None:
            mask = ops.reshape(mask, ops.shape(shares)[:2])
        kept = kept_from_mask(mask, shares.dtype)
        return zero_where_empty(masked_mean(shares, kept), mask)

    def adapt(
        self, features: Tensor, *, max_features: int = 20_000, seed: int = 0
    ) -> None:
        """Initializes the prototypes; see `GeneralizedSumPooling.adapt`."""
        features = ops.convert_to_tensor(features)
        if not self.built:
            self.build(features.shape)
        self.prototypes.assign(
            prototype_cover(features, self.num_prototypes, max_features, seed)
        )

    def compute_mask(self, inputs: Tensor, mask: Tensor | None = None) -> None:
        return None
