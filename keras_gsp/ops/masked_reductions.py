"""Mean, power mean, maximum and softmax over the features that a mask keeps.

Symbols: n `num_features`; `kept` (batch, num_features) is 1 for a feature that
counts and 0 for one that does not, or `None` where all count.
"""

from keras import ops

from keras_gsp._checks import check_interval
from keras_gsp._tensor import Tensor
from keras_gsp.ops.precision import larger


def kept_from_mask(mask: Tensor | None, dtype: str) -> Tensor | None:
    """Returns a boolean mask as numbers; an all-masked row becomes all ones.

    Such a row has no mean. Pooled as if it kept everything, it and its
    gradient stay finite; `zero_where_empty` replaces the result by zeros.
    """
    if mask is None:
        return None
    mask = ops.cast(mask, "bool")
    is_empty = ops.logical_not(ops.any(mask, axis=-1, keepdims=True))
    return ops.cast(ops.logical_or(mask, is_empty), dtype)


def zero_where_masked(features: Tensor, mask: Tensor | None) -> Tensor:
    """Returns (..., num_features, channels) with zeros in masked features.

    A masked feature may be NaN, and zero times NaN is NaN.
    """
    if mask is None:
        return features
    is_kept = ops.cast(mask, "bool")[..., None]
    return ops.where(is_kept, features, ops.zeros_like(features))


def zero_where_empty(pooled: Tensor, mask: Tensor | None) -> Tensor:
    """Returns (batch, ...) with zeros in rows whose mask keeps nothing."""
    if mask is None:
        return pooled
    is_kept = ops.any(ops.cast(mask, "bool"), axis=-1)
    is_kept = ops.reshape(is_kept, (-1, *[1] * (len(pooled.shape) - 1)))
    return ops.where(is_kept, pooled, ops.zeros_like(pooled))


def num_kept(features: Tensor, kept: Tensor | None) -> Tensor:
    """Returns the number of features that count, a scalar or (batch, 1)."""
    if kept is None:
        return ops.cast(ops.shape(features)[1], features.dtype)
    return ops.sum(kept, axis=-1, keepdims=True)


def masked_mean(features: Tensor, kept: Tensor | None) -> Tensor:
    """Averages (batch, num_features, size) over the kept features."""
    if kept is not None:
        features = kept[..., None] * features
    # Not `ops.mean`, which rounds float64 to float32 on JAX.
    return ops.sum(features, axis=1) / num_kept(features, kept)


def masked_max(features: Tensor, kept: Tensor | None) -> Tensor:
    """Maximum of (batch, num_features, size) over the kept features."""
    if kept is not None:
        lowest = ops.cast(-float("inf"), features.dtype)
        features = ops.where(kept[..., None] > 0.0, features, lowest)
    return ops.max(features, axis=1)


def masked_softmax(scores: Tensor, kept: Tensor | None) -> Tensor:
    """Softmax over the kept features, the last axis; 0 where not kept."""
    if kept is not None:
        if len(scores.shape) == 3:
            kept = ops.expand_dims(kept, axis=1)
        scores = ops.where(kept > 0.0, scores, -float("inf"))
    return ops.softmax(scores, axis=-1)


# GeM clips features here: a smaller one has no useful power.
_SMALLEST_FEATURE = 1e-6


def check_power(power: float) -> float:
    """Returns `power`, or raises `ValueError` unless it is at least 1."""
    check_interval("[1, inf]", power=power)
    return power


def generalized_mean(
    features: Tensor, power: float | Tensor, *, kept: Tensor | None = None
) -> Tensor:
    r"""Power mean over features: :math:`(\frac{1}{n} \sum_j f_j^p)^{1/p}`.

    (batch, num_features, channels) to (batch, channels). Features are clipped
    below at 1e-6. The largest of each channel is divided out first: neither
    100 ** 20 nor 1e-6 ** 10 fits into float32.
    """
    clipped = larger(features, _SMALLEST_FEATURE)
    if kept is not None:
        clipped = ops.where(kept[..., None] > 0.0, clipped, _SMALLEST_FEATURE)
    largest = ops.stop_gradient(ops.max(clipped, axis=1, keepdims=True))
    # Operators: `ops.power` of Keras 3.16 rounds float64 on PyTorch.
    mean = masked_mean((clipped / largest) ** power, kept)
    return largest[:, 0] * mean ** (1.0 / power)
