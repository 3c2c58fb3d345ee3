"""Poolings of each channel by itself: maximum, power mean, ranks."""

import math
from typing import Any

import keras
from keras import ops

from keras_gsp._checks import check_count, require
from keras_gsp._tensor import Tensor
from keras_gsp.layers.pooling.feature_pooling import (
    FeaturePooling,
    num_features,
)
from keras_gsp.ops.masked_reductions import (
    check_power,
    generalized_mean,
    masked_max,
    masked_mean,
    num_kept,
)


class AverageMaxPooling(FeaturePooling):
    r"""Pools each channel to the sum of its average and its maximum.

    .. math:: \text{pooled}_k = \frac{1}{n} \sum_j f_{jk} + \max_j f_{jk}

    Input, output, mask and errors: see `FeaturePooling`.

    Example:
        ```python
        pooled = gsp.layers.AverageMaxPooling()(np.ones((2, 7, 7, 16)))
        ```

    Reference:
        "GMP+GAP" of Generalized Sum Pooling for Metric Learning, and Proxy
        Anchor Loss for Deep Metric Learning. Both project the sum, as
        `build_encoder` does.
    """

    pools_first = True

    def pool(self, features: Tensor, kept: Tensor) -> Tensor:
        return masked_mean(features, kept) + masked_max(features, kept)


class GeneralizedMeanPooling(FeaturePooling):
    r"""Pools each channel by its power mean (GeM).

    .. math:: \text{pooled}_k =
        \Big( \frac{1}{n} \sum_j \max(f_{jk}, 10^{-6})^p \Big)^{1/p}

    For nonnegative features, such as those after a ReLU: `build_encoder`
    pools these and projects afterwards.

    Args:
        power: exponent p, at least 1. Default 3.0. 1 is average pooling of
            the positive part; the limit at infinity is maximum pooling.
        learn_power: whether to learn the exponent, one for all channels, by a
            weight w (`log_power_excess`) with :math:`p = 1 + e^w` that starts
            at `power` (above 1). Default `False`.

    Input, output, mask and errors: see `FeaturePooling`.

    Example:
        ```python
        pooled = gsp.layers.GeneralizedMeanPooling(3.0)(np.ones((2, 7, 7, 16)))
        ```

    Reference:
        Fine-tuning CNN Image Retrieval with No Human Annotation, (3), where
        p itself is the weight and may fall below 1.
    """

    pools_first = True

    def __init__(
        self, power: float = 3.0, *, learn_power: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.power = checked_power(power, learn_power)
        self.learn_power = learn_power

    def create_weights(self, channels: int, input_shape: tuple) -> None:
        add_power_weight(self)

    def pool(self, features: Tensor, kept: Tensor) -> Tensor:
        return generalized_mean(features, power_of(self), kept=kept)


def checked_power(power: float, learn_power: bool) -> float:
    """Returns the initial exponent: at least 1, above 1 where it is learned."""
    if learn_power and not power > 1.0:
        # The weight would start at minus infinity.
        raise ValueError(
            "`power` must be above 1 with learn_power=True. "
            f"Received: power={power}."
        )
    return check_power(power)


def add_power_weight(layer: Any) -> None:
    r"""Adds the weight w of :math:`p = 1 + e^w` if the layer learns p."""
    if layer.learn_power:
        start = keras.initializers.Constant(math.log(layer.power - 1.0))
        layer.log_power_excess = layer.full_precision_weight(
            "log_power_excess", (), start
        )


def power_of(layer: Any) -> Any:
    """Returns the exponent of a layer: a number or a scalar tensor."""
    if not layer.learn_power:
        return layer.power
    return 1.0 + ops.exp(ops.convert_to_tensor(layer.log_power_excess))


class WELDONPooling(FeaturePooling):
    r"""Adds the means of each channel's largest and smallest responses.

    .. math:: \text{pooled}_k =
        \frac{1}{k^+} \sum_{i=1}^{k^+} f_{(i)k}
        + \frac{1}{k^-} \sum_{i=1}^{k^-} f_{(n+1-i)k}

    with :math:`f_{(1)k} \ge f_{(2)k} \ge \dots` the sorted responses of
    channel k.

    Args:
        num_largest: k+, at least 1. Default 3. There must be as many features;
            where a mask keeps fewer tokens, all kept ones are averaged.
        num_smallest: k-, likewise. Default 3.

    Input, output, mask and errors: see `FeaturePooling`.

    Example:
        ```python
        pooling = gsp.layers.WELDONPooling(num_largest=1, num_smallest=1)
        assert float(pooling(np.array([[[3.0], [5.0], [-1.0]]]))[0, 0]) == 4.0
        ```

    Reference:
        WELDON: Weakly Supervised Learning of Deep Convolutional Neural
        Networks, (1) and (2), with means for its sums. The GSP paper's code
        (k+ = k- = 3) also counts tied responses beyond k.
    """

    def __init__(
        self, num_largest: int = 3, num_smallest: int = 3, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        check_count(num_largest=num_largest, num_smallest=num_smallest)
        self.num_largest = num_largest
        self.num_smallest = num_smallest

    def check_size(self, input_shape: tuple) -> None:
        """Raises `ValueError` for fewer features than k."""
        count = num_features(input_shape)
        if count is not None and count < self._most:
            raise ValueError(
                f"{_TOO_FEW} Received: {count} features, num_largest="
                f"{self.num_largest}, num_smallest={self.num_smallest}."
            )

    def pool(self, features: Tensor, kept: Tensor) -> Tensor:
        count = ops.shape(features)[1]
        enough = count >= self._most
        features = require(features, enough, _TOO_FEW, num_features=count)
        rows = ops.swapaxes(features, 1, 2)
        pooled = _mean_of_largest(rows, kept, self.num_largest) - (
            _mean_of_largest(-rows, kept, self.num_smallest)
        )
        # NaN has no order: TensorFlow's `top_k` may lose it.
        is_nan = ops.any(ops.isnan(rows), axis=-1)
        return ops.where(is_nan, float("nan"), pooled)

    @property
    def _most(self):
        return max(self.num_largest, self.num_smallest)


_TOO_FEW = "There must be at least `num_largest` and `num_smallest` features."


def _mean_of_largest(rows, kept, count):
    """Mean of the `count` largest entries of (batch, channels, features)."""
    if kept is None:
        largest, _ = ops.top_k(rows, count)
        return ops.sum(largest, axis=-1) / count
    present = ops.expand_dims(kept, axis=1) > 0.0
    largest, _ = ops.top_k(ops.where(present, rows, -float("inf")), count)
    # Sorted: the kept ones are first, infinite or not.
    number = ops.minimum(num_kept(rows, kept), float(count))
    is_real = (ops.arange(count, dtype=rows.dtype) < number)[:, None]
    return ops.sum(ops.where(is_real, largest, 0.0), axis=-1) / number
