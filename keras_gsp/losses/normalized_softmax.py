"""Normalized softmax loss: classification of unit vectors."""

from typing import Any

import keras

from keras_gsp.losses.proxy_similarity import (
    ProxyLoss,
    nearest_of_class,
    own_similarities,
    softmax_terms,
)
from keras_gsp.ops.arguments import check_positive
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class NormalizedSoftmaxLoss(ProxyLoss):
    r"""Classifies embeddings by their cosine to each class's proxy.

    With :math:`s_c` the cosine of an embedding and the proxy of class c, y
    its own class, T the temperature:

    .. math:: -\log \frac{e^{s_y / T}}{\sum_c e^{s_c / T}}

    averaged over all samples. If a class has several proxies (sub-centers),
    the nearest one counts (`ProxyNCALoss` adds their probabilities instead;
    with one proxy per class the two are the same function).

    Args:
        temperature: what cosines are divided by, positive. Default 0.05.
        **kwargs: those of `ProxyLoss`.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    loss = gsp.losses.NormalizedSoftmaxLoss()
    proxies = gsp.layers.ClassProxies(num_classes=3)
    embeddings = np.eye(4, 8, dtype="float32")
    value = loss(np.array([0, 0, 1, 2]), proxies(embeddings))
    ```

    Reference:
        Zhai and Wu, "Classification is a Strong Baseline for Deep Metric
        Learning", BMVC 2019, section 3.1. Its layer normalization of the
        embedding belongs to the encoder.
    """

    def __init__(self, temperature: float = 0.05, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_positive(temperature=temperature)
        self.temperature = temperature

    def sample_terms(self, labels: Tensor, similarities: Tensor) -> Tensor:
        """Returns each sample's cross-entropy."""
        nearest = nearest_of_class(similarities)
        own = own_similarities(labels, nearest)
        differences = (nearest - own[:, None]) / self.temperature
        return softmax_terms(labels, differences)
