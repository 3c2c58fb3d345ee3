"""How much of an image each prototype stands for.

Symbols: x_j `features`, nu_i `prototypes`, eps_h `inverse_temperature`,
z `histograms`.
"""

from keras import ops

from keras_gsp.ops.distances import pairwise_distances
from keras_gsp.ops.precision import at_least_float32, exact_mean
from keras_gsp.ops.tensor import Tensor

AFFINITIES = ("dot", "l2")


def check_affinity(affinity: str) -> str:
    """Raises `ValueError` unless given `"dot"` or `"l2"`."""
    if affinity not in AFFINITIES:
        raise ValueError(
            f'`affinity` must be "dot" or "l2". Received: {affinity=}.'
        )
    return affinity


def soft_histogram(
    features: Tensor,
    prototypes: Tensor,
    *,
    inverse_temperature: float = 10.0,
    affinity: str = "dot",
    mask: Tensor | None = None,
) -> Tensor:
    """Shares each feature softly among the prototypes and averages.

    `z_i = mean_j softmax_i(eps_h s_ij)`, where the affinity `s_ij` is the
    dot product `nu_i . x_j` or minus the Euclidean distance (not squared).

    Args:
        features: (batch, height, width, channels) or
            (batch, tokens, channels).
        prototypes: (num_prototypes, channels).
        inverse_temperature: eps_h, float, positive; infinity would be the
            hard histogram.
        affinity: `"dot"` or `"l2"`.
        mask: (batch, height, width) or (batch, tokens), boolean, the
            features that count; all by default.

    Returns:
        (batch, num_prototypes), float32 or float64. Rows sum to 1; a row
        without any feature is zero.

    Example:
    ```python
    rng = np.random.default_rng(0)
    histograms = gsp.ops.soft_histogram(
        rng.normal(size=(2, 7, 7, 16)), rng.normal(size=(8, 16))
    )
    ```

    Reference:
        XML, (2.4).
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
    """Counts the features that each prototype is the best match for.

    (2.1) of the paper, whose "minimizer" is the maximiser: all of a
    feature's mass goes to the prototype of the largest affinity, the first
    one in a tie. With `affinity="l2"`, or with prototypes of one norm, that
    is the nearest prototype, and the distance between the average feature
    and `prototype_combination` of the histogram is at most the largest
    distance of a feature to its nearest prototype (Lemma 2.1). With
    `affinity="dot"` and prototypes of different norms, the Lemma fails.

    Args:
        features: (batch, height, width, channels) or
            (batch, tokens, channels).
        prototypes: (num_prototypes, channels).
        affinity: `"dot"` as printed, or `"l2"`.
        mask: (batch, height, width) or (batch, tokens), boolean, the
            features that count; all by default.

    Returns:
        (batch, num_prototypes), float32 or float64, without gradient. Rows
        sum to 1; a row without any feature is zero.

    Example:
    ```python
    prototypes = np.array([[0.0], [0.5], [1.0]])
    histogram = gsp.ops.hard_histogram(
        np.array([[[0.1], [0.2], [0.9], [0.4]]]), prototypes, affinity="l2"
    )  # [[0.5, 0.25, 0.25]]
    ```

    Reference:
        XML, (2.1) and Lemma 2.1.
    """
    affinities = _affinities(features, prototypes, affinity, mask)
    best = ops.argmax(affinities, axis=-1)
    counted = ops.one_hot(best, affinities.shape[-1], dtype=affinities.dtype)
    return _mean_over_features(counted, mask)


def prototype_combination(histograms: Tensor, prototypes: Tensor) -> Tensor:
    """Combines prototypes with the weights of a histogram.

    What the average of the features becomes when each of them is replaced
    by the prototypes that stand for it: `sum_i z_i nu_i`.

    Args:
        histograms: (batch, num_prototypes), rows that sum to 1.
        prototypes: (num_prototypes, channels).

    Returns:
        (batch, channels), float32 or float64.

    Example:
    ```python
    average = gsp.ops.prototype_combination(
        np.array([[0.25, 0.75]]), np.array([[0.0, 4.0], [4.0, 0.0]])
    )  # [[3.0, 1.0]]
    ```

    Reference:
        XML, the convex combination before Lemma 2.1.
    """
    histograms = at_least_float32(histograms)
    return ops.matmul(histograms, ops.cast(prototypes, histograms.dtype))


def _affinities(features, prototypes, affinity, mask):
    """(batch, features, num_prototypes), the larger the closer."""
    check_affinity(affinity)
    features = at_least_float32(features)
    if len(features.shape) not in (3, 4):
        raise ValueError(
            "`features` must have shape (batch, height, width, channels) or "
            f"(batch, tokens, channels). Received: {tuple(features.shape)}."
        )
    if mask is not None:
        # What is masked may be NaN, and must not reach any gradient.
        is_kept = ops.cast(mask, "bool")[..., None]
        features = ops.where(is_kept, features, ops.zeros_like(features))
    if len(features.shape) == 4:
        batch, height, width, channels = ops.shape(features)
        features = ops.reshape(features, (batch, height * width, channels))
    prototypes = ops.cast(prototypes, features.dtype)
    if affinity == "l2":
        return -pairwise_distances(features, prototypes)
    return ops.matmul(features, ops.transpose(prototypes))


def _mean_over_features(shares, mask):
    """Averages (batch, features, num_prototypes) over what is not masked."""
    if mask is None:
        return exact_mean(shares, axis=1)
    counts = ops.cast(ops.reshape(mask, ops.shape(shares)[:2]), shares.dtype)
    total = ops.sum(counts, axis=1, keepdims=True)
    return ops.sum(counts[..., None] * shares, axis=1) / ops.maximum(total, 1.0)
