"""Proxy-NCA++ loss: softmax cross-entropy over all proxies."""

from typing import Any

import keras
from keras import ops

from keras_gsp.losses.proxy_similarity import ProxyLoss, own_similarities
from keras_gsp.ops.arguments import check_positive


@keras.saving.register_keras_serializable(package="keras_gsp")
class ProxyNCALoss(ProxyLoss):
    """Picks the proxy of the right class out of all proxies.

    With `s` the cosine of embedding and proxy, T the temperature:

    `mean_samples -log( sum_own exp(s / T) / sum_all exp(s / T) )`

    The own proxy stands in the denominator too (the "++" form), and the mean
    is over all samples. With several proxies per class, the probabilities of
    a class's proxies are added. Pairs of samples play no role, so a batch
    without positive pairs is nothing special.

    The temperature has two conventions. Here, as in the papers' code, it
    divides the cosine. Proxy-NCA++ divides the negative squared distance of
    unit vectors, which is `2 s - 2`, so that its temperature is twice the one
    that gives the same loss here: the default 0.11 (a scale of 9.1 on
    cosines) is 0.22 there, and its published 1/9 (a scale of 18) is 1/18
    here.

    Args:
        temperature: what cosines are divided by, positive. Default 0.11.
        **kwargs: `reduction`, `name` and `dtype`; see `ProxyLoss`.

    Raises:
        ValueError: a `temperature` that is not positive.

    Example:

    ```python
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

    def __init__(
        self,
        temperature: float = 0.11,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_positive(temperature=temperature)
        self.temperature = temperature

    def sample_terms(self, labels: Any, similarities: Any) -> Any:
        """Returns each sample's cross-entropy."""
        logits = similarities / self.temperature
        own = ops.logsumexp(own_similarities(labels, logits), axis=-1)
        return ops.logsumexp(logits, axis=(1, 2)) - own

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "temperature": self.temperature}
