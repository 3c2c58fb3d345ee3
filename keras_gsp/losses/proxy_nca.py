"""Proxy-NCA++ loss: softmax cross-entropy over all proxies."""

from typing import Any

import keras
from keras import ops

from keras_gsp.losses.proxy_similarity import ProxyLoss, own_similarities
from keras_gsp.ops.arguments import check_positive
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class ProxyNCALoss(ProxyLoss):
    """Softmax cross-entropy over the cosines to all proxies.

    With `s` the cosine of embedding and proxy, T the temperature:

    `mean_samples -log( sum_own exp(s / T) / sum_all exp(s / T) )`

    The denominator includes the own proxy (the "++" form); the mean is over
    all samples. If a class has several proxies, their probabilities are added.

    Here, as in the papers' code, the temperature divides the cosine.
    Proxy-NCA++ divides the negative squared distance of unit vectors,
    `2 s - 2`, so its temperature is twice ours: the default 0.11 is 0.22
    there, and its published 1/9 is 1/18 here.

    Args:
        temperature: what cosines are divided by, positive. Default 0.11.
        **kwargs: those of `ProxyLoss`.

    Example:

    ```python
    import keras
    import numpy as np
    import keras_gsp as gsp

    model = keras.Sequential(
        [keras.Input((8,)), gsp.layers.ClassProxies(num_classes=3)]
    )
    model.compile("adam", loss=gsp.losses.ProxyNCALoss())
    embeddings = np.random.default_rng(0).normal(size=(12, 8))
    model.fit(embeddings, np.arange(12) % 3, verbose=0)
    ```

    Reference:
        Teh et al., "ProxyNCA++", ECCV 2020, section 3; default of
        Gürbüz et al., ICCV 2023. The text of the chance-constrained paper
        has 0.1.
    """

    def __init__(self, temperature: float = 0.11, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_positive(temperature=temperature)
        self.temperature = temperature

    def sample_terms(self, labels: Tensor, similarities: Tensor) -> Tensor:
        """Returns each sample's cross-entropy."""
        logits = similarities / self.temperature
        own = ops.logsumexp(own_similarities(labels, logits), axis=-1)
        return ops.logsumexp(logits, axis=(1, 2)) - own
