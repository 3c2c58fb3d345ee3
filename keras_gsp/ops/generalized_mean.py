"""The power mean of features, between their average and their maximum."""

from keras import ops

from keras_gsp.ops.tensor import Tensor

# A feature below this has no useful power; GeM clips there.
_SMALLEST_FEATURE = 1e-6


def check_power(power: float) -> float:
    """Raises `ValueError` for an exponent below 1, or NaN."""
    if not power >= 1.0:
        raise ValueError(
            f"`power` must be at least 1. Received: power={power}."
        )
    return power


def generalized_mean(
    features: Tensor, power: float, *, kept: Tensor | None = None
) -> Tensor:
    r"""Power mean over features: :math:`(\frac{1}{n} \sum_j f_j^p)^{1/p}`.

    Features are clipped below at 1e-6, and the largest of each channel is
    divided out first: neither 100 ** 20 nor 1e-6 ** 10 fits into float32.

    Args:
        features: (batch, num_features, channels), float32 or float64.
        power: exponent, at least 1.
        kept: optional (batch, num_features), 1 for features that count and 0
            for those that do not. A row that keeps nothing gives 1e-6.

    Returns:
        (batch, channels).
    """
    clipped = ops.maximum(features, _SMALLEST_FEATURE)
    if kept is None:
        count = ops.cast(ops.shape(features)[1], features.dtype)
        present = None
    else:
        present = ops.expand_dims(kept, axis=-1)
        clipped = ops.where(present > 0.0, clipped, _SMALLEST_FEATURE)
        count = ops.maximum(ops.sum(present, axis=1), 1.0)
    largest = ops.stop_gradient(ops.max(clipped, axis=1, keepdims=True))
    powers = ops.power(clipped / largest, power)
    if present is not None:
        # An empty row keeps its clipped features: 0 ** (1 / p) has no slope.
        is_empty = ops.sum(present, axis=1, keepdims=True) == 0.0
        present = ops.where(is_empty, 1.0 / count[:, None], present)
        powers = powers * present
    mean = ops.sum(powers, axis=1) / count
    return largest[:, 0] * ops.power(mean, 1.0 / power)
