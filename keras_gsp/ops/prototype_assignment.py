"""Histograms of features over prototypes."""

from keras import ops

from keras_gsp.ops.arguments import check_choice
from keras_gsp.ops.distances import pairwise_distances
from keras_gsp.ops.masked_reductions import (
    kept_from_mask,
    masked_mean,
    zero_where_empty,
    zero_where_masked,
)
from keras_gsp.ops.precision import at_least_float32, full_matmul
from keras_gsp.ops.tensor import Tensor


def soft_histogram(
    features: Tensor,
    prototypes: Tensor,
    *,
    inverse_temperature: float,
    affinity: str = "dot",
    mask: Tensor | None = None,
) -> Tensor:
    """Averages the soft assignment of features to prototypes (XML, (2.4)).

    `z_i = mean_j softmax_i(inverse_temperature * s_ij)`, where the affinity
    `s_ij` is the dot product of prototype i and feature j, or minus their
    Euclidean distance (not squared).
    Features are (batch, height, width, channels) or (batch, tokens, channels);
    the result is (batch, num_prototypes), float32 at least. Rows sum to 1; an
    all-masked row is zero.
    """
    check_choice("dot", "l2", affinity=affinity)
    features = at_least_float32(features)
    if len(features.shape) not in (3, 4):
        raise ValueError(
            "`features` must have shape (batch, height, width, channels) or "
            f"(batch, tokens, channels). Received: {tuple(features.shape)}."
        )
    features = zero_where_masked(features, mask)
    if len(features.shape) == 4:
        batch, height, width, channels = ops.shape(features)
        features = ops.reshape(features, (batch, height * width, channels))
    prototypes = ops.cast(prototypes, features.dtype)
    if affinity == "l2":
        affinities = -pairwise_distances(features, prototypes)
    else:
        affinities = full_matmul(features, ops.transpose(prototypes))
    shares = ops.softmax(inverse_temperature * affinities, axis=-1)
    if mask is not None:
        mask = ops.reshape(mask, ops.shape(shares)[:2])
    kept = kept_from_mask(mask, shares.dtype)
    return zero_where_empty(masked_mean(shares, kept), mask)
