"""ArcFace loss: softmax with an additive angular margin."""

import math
from typing import Any

import keras
from keras import ops

from keras_gsp.losses.proxy_similarity import (
    ProxyLoss,
    nearest_of_class,
    own_similarities,
    softmax_terms,
)
from keras_gsp.ops.arguments import check_positive
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class ArcFaceLoss(ProxyLoss):
    r"""Classifies with an angular margin on the true class (ArcFace).

    With :math:`\theta_c` the angle between an embedding and the proxy of
    class c, y its own class:

    .. math:: -\log \frac{e^{\text{scale} \cos(\theta_y + \text{margin})}}
        {e^{\text{scale} \cos(\theta_y + \text{margin})}
        + \sum_{c \neq y} e^{\text{scale} \cos \theta_c}}

    averaged over all samples. Where :math:`\theta_y + \text{margin}` exceeds
    pi the cosine would rise again; it is replaced by
    :math:`\cos \theta_y - \text{margin} \sin(\text{margin})`, which falls.
    If a class has several proxies (sub-centers), the nearest one counts.

    Args:
        margin: radians, in [0, pi / 2]. Default 0.5 (28.6 degrees).
        scale: inverse temperature of the softmax, positive. Default 64.
        **kwargs: those of `ProxyLoss`.

    Example:

    ```python
    import keras
    import numpy as np
    import keras_gsp as gsp

    proxies = gsp.layers.ClassProxies(num_classes=3, proxies_per_class=2)
    model = keras.Sequential([keras.Input((8,)), proxies])
    model.compile("adam", loss=gsp.losses.ArcFaceLoss(scale=16.0))
    embeddings = np.random.default_rng(0).normal(size=(12, 8))
    model.fit(embeddings, np.arange(12) % 3, verbose=0)
    ```

    Reference:
        Deng et al., "ArcFace", CVPR 2019, equation (3); sub-centers: Deng et
        al., "Sub-center ArcFace", ECCV 2020, section 3.2. The continuation
        is that of their code. At an angle of exactly 0 or pi, where the
        gradient of the angle is infinite, that term of the gradient is 0.
    """

    def __init__(
        self, margin: float = 0.5, scale: float = 64.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        check_positive(scale=scale)
        if not 0.0 <= margin <= math.pi / 2.0:
            raise ValueError(
                "`margin` must be in [0, pi / 2], in radians. "
                f"Received: margin={margin}."
            )
        self.margin = margin
        self.scale = scale

    def sample_terms(self, labels: Tensor, similarities: Tensor) -> Tensor:
        """Returns each sample's cross-entropy with the margin applied."""
        nearest = nearest_of_class(similarities)
        own = self._turned(own_similarities(labels, nearest))
        return softmax_terms(labels, self.scale * (nearest - own[:, None]))

    def _turned(self, cosines):
        """The cosine of the angle plus the margin."""
        squares = 1.0 - ops.square(cosines)
        is_straight = squares <= 0.0
        # Double `where`: sqrt never sees the zero whose gradient is infinite.
        sines = ops.sqrt(ops.where(is_straight, 1.0, squares))
        sines = ops.where(is_straight, 0.0, sines)
        turned = cosines * math.cos(self.margin) - sines * math.sin(self.margin)
        falling = cosines - self.margin * math.sin(self.margin)
        return ops.where(cosines >= -math.cos(self.margin), turned, falling)
