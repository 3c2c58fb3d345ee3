"""CosFace loss: softmax with an additive cosine margin."""

from typing import Any

import keras

from keras_gsp.losses.proxy_similarity import (
    ProxyLoss,
    nearest_of_class,
    own_similarities,
    softmax_terms,
)
from keras_gsp.ops.arguments import check_not_negative, check_positive
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class CosFaceLoss(ProxyLoss):
    r"""Classifies with a cosine margin on the true class (CosFace).

    With :math:`s_c` the cosine of an embedding and the proxy of class c, y
    its own class:

    .. math:: -\log \frac{e^{\text{scale} (s_y - \text{margin})}}
        {e^{\text{scale} (s_y - \text{margin})}
        + \sum_{c \neq y} e^{\text{scale}\, s_c}}

    averaged over all samples. If a class has several proxies (sub-centers),
    the nearest one counts.

    Args:
        margin: cosine, at least 0. Default 0.35.
        scale: inverse temperature of the softmax, positive. Default 64.
        **kwargs: those of `ProxyLoss`.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    loss = gsp.losses.CosFaceLoss(margin=0.2, scale=16.0)
    proxies = gsp.layers.ClassProxies(num_classes=3)
    embeddings = np.eye(4, 8, dtype="float32")
    value = loss(np.array([0, 0, 1, 2]), proxies(embeddings))
    ```

    Reference:
        Wang et al., "CosFace: Large Margin Cosine Loss for Deep Face
        Recognition", CVPR 2018, equation (4).
    """

    def __init__(
        self, margin: float = 0.35, scale: float = 64.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        check_not_negative(margin=margin)
        check_positive(scale=scale)
        self.margin = margin
        self.scale = scale

    def sample_terms(self, labels: Tensor, similarities: Tensor) -> Tensor:
        """Returns each sample's cross-entropy with the margin applied."""
        nearest = nearest_of_class(similarities)
        own = own_similarities(labels, nearest) - self.margin
        return softmax_terms(labels, self.scale * (nearest - own[:, None]))
