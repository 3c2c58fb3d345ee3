"""Regularizer that pulls the proxies of one class together (SoftTriple)."""

import keras
from keras import ops

from keras_gsp.layers.configured_layer import Configured
from keras_gsp.ops.arguments import check_not_negative
from keras_gsp.ops.distances import pairwise_distances
from keras_gsp.ops.normalization import unit_sphere
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class CenterRegularizer(Configured, keras.regularizers.Regularizer):
    """Penalizes the distances between the proxies of one class.

    `weight / (C K (K - 1)) sum_c sum_{s < t} |w_cs - w_ct|`

    over the normalized proxies w of C classes with K proxies each: `weight`
    times half the mean distance between two proxies of a class. Proxies that
    a class does not need merge. The penalty is 0 with one proxy per class;
    equal proxies have distance 0 and no gradient.

    Args:
        weight: at least 0 (tau in the paper). Default 0.2, the value in the
            paper's code.

    Raises:
        ValueError: a negative `weight`; proxies whose shape is not
            (num_classes, proxies_per_class, embedding_size).

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    proxies = gsp.layers.ClassProxies(
        num_classes=5,
        proxies_per_class=2,
        proxies_regularizer=gsp.losses.CenterRegularizer(0.2),
    )
    proxies(np.eye(3, 8, dtype="float32"))
    penalty = proxies.losses[0]
    ```

    Reference:
        Qian et al., "SoftTriple Loss", ICCV 2019, section 3.3. The proxies
        are normalized, as in the paper; the code of the GSP papers does not
        normalize them.
    """

    def __init__(self, weight: float = 0.2) -> None:
        check_not_negative(weight=weight)
        self.weight = weight

    def __call__(self, proxies: Tensor) -> Tensor:
        """Returns the penalty.

        Args:
            proxies: (num_classes, proxies_per_class, embedding_size), any
                length.

        Returns:
            Scalar, float32 or float64.
        """
        if len(proxies.shape) != 3:
            raise ValueError(
                "`proxies` must have shape (num_classes, proxies_per_class, "
                f"embedding_size). Received: shape {tuple(proxies.shape)}."
            )
        num_classes, per_class, _ = proxies.shape
        centers = unit_sphere(proxies)
        if per_class == 1:
            return ops.zeros((), dtype=centers.dtype)
        # Both orders of each pair: twice the sum over s < t.
        distances = ops.sum(pairwise_distances(centers, centers))
        pairs = num_classes * per_class * (per_class - 1)
        return self.weight * distances / (2.0 * pairs)
