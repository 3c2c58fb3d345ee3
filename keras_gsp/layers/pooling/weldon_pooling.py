"""WELDON pooling: mean of the largest and smallest responses."""

from typing import Any

import keras
from keras import ops

from keras_gsp.layers.pooling.feature_pooling import (
    FeaturePooling,
    num_features,
)
from keras_gsp.ops.arguments import check_count
from keras_gsp.ops.masked_reductions import num_kept
from keras_gsp.ops.preconditions import require
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
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

    Input shape: (batch, height, width, channels) or (batch, tokens, channels).
    Output shape: (batch, channels). Mask and errors: see `FeaturePooling`.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    pooling = gsp.layers.WELDONPooling(num_largest=1, num_smallest=1)
    features = np.array([[[3.0], [5.0], [-1.0]]], "float32")
    assert float(pooling(features)[0, 0]) == 4.0
    ```

    Reference:
        WELDON: Weakly Supervised Learning of Deep Convolutional Neural
        Networks, (1) and (2). The paper and the GSP paper's code (k+ = k- = 3)
        sum instead of averaging; normalization removes the factor k. That code
        also counts tied responses beyond k.
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
                "There must be at least `num_largest` and `num_smallest` "
                f"features. Received: {count} features, "
                f"num_largest={self.num_largest}, "
                f"num_smallest={self.num_smallest}."
            )

    def pool(self, features: Tensor, kept: Tensor) -> Tensor:
        """Returns mean of the largest + mean of the smallest."""
        if features.shape[1] is None:
            features = require(
                features,
                ops.shape(features)[1] >= self._most,
                "There must be at least `num_largest` and `num_smallest` "
                "features.",
                num_features=ops.shape(features)[1],
            )
        else:
            self.check_size(features.shape)
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
