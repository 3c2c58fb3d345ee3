"""Histograms of features over prototypes: soft and hard assignment.

Symbols: x_j `features`, nu_i `prototypes`, eps_h `inverse_temperature`,
z `histograms`.
"""

from keras import ops

from keras_gsp.ops.arguments import check_choice
from keras_gsp.ops.distances import pairwise_distances
from keras_gsp.ops.masked_reductions import zero_where_masked
from keras_gsp.ops.precision import at_least_float32, exact_mean
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

    `z_i = mean_j softmax_i(eps_h s_ij)`, where the affinity `s_ij` is the
    dot product `nu_i . x_j` or minus the Euclidean distance (not squared).
    Features are (batch, height, width, channels) or (batch, tokens, channels);
    the result is (batch, num_prototypes), float32 at least. Rows sum to 1; an
    all-masked row is zero.
    """
    affinities = _affinities(features, prototypes, affinity, mask)
    shares = ops.softmax(inverse_temperature * affinities, axis=-1)
    return _mean_over_features(shares, mask)


def hard_histogram(
    features: Tensor,
    prototypes: Tensor,
    *,
    affinity: str = "dot",
    mask: Tensor | None = None,
) -> Tensor:
    """Averages the hard assignment of features to prototypes (XML, (2.1)).

    Each feature counts for the prototype of largest affinity, the first one
    in a tie (the paper prints "minimizer"). With `affinity="l2"`, or with
    prototypes of equal norm, Lemma 2.1 holds: the distance between the average
    feature and `histogram @ prototypes` is at most the largest distance of a
    feature to its nearest prototype. Shapes are those of `soft_histogram`.
    """
    affinities = _affinities(features, prototypes, affinity, mask)
    best = ops.argmax(affinities, axis=-1)
    counted = ops.one_hot(best, affinities.shape[-1], dtype=affinities.dtype)
    return _mean_over_features(counted, mask)


def _affinities(features, prototypes, affinity, mask):
    """(batch, features, num_prototypes), the larger the closer."""
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
        return -pairwise_distances(features, prototypes)
    return ops.matmul(features, ops.transpose(prototypes))


def _mean_over_features(shares, mask):
    """Averages (batch, features, num_prototypes) over the kept features."""
    if mask is None:
        return exact_mean(shares, axis=1)
    counts = ops.cast(ops.reshape(mask, ops.shape(shares)[:2]), shares.dtype)
    total = ops.sum(counts, axis=1, keepdims=True)
    return ops.sum(counts[..., None] * shares, axis=1) / ops.maximum(total, 1.0)
