"""SoftTriple loss: softmax over several centers per class."""

from typing import Any

import keras
from keras import ops

from keras_gsp.losses.proxy_similarity import (
    ProxyLoss,
    own_similarities,
    softmax_terms,
)
from keras_gsp.ops.arguments import check_not_negative, check_positive
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class SoftTripleLoss(ProxyLoss):
    """Classifies by a soft maximum over each class's centers.

    With `s_ck` the cosine of an embedding and center k of class c:

    `S_c = sum_k softmax_k(s_ck / gamma) s_ck`

    `mean_samples -log( exp(scale (S_y - margin)) / ( exp(scale (S_y -
    margin)) + sum_{c != y} exp(scale S_c) ) )`

    The mean is over all samples. The centers of a class
    are pulled together by `CenterRegularizer`, given to the proxies.

    Args:
        scale: inverse temperature of the classes' softmax, positive
            (lambda in the paper). Default 20.
        gamma: temperature of the choice among a class's centers, positive.
            Default 0.1.
        margin: cosine subtracted from the own class, at least 0 (delta in the
            paper). Default 0.01.
        **kwargs: those of `ProxyLoss`.

    Example:

    ```python
    import keras
    import numpy as np
    import keras_gsp as gsp

    proxies = gsp.layers.ClassProxies(
        num_classes=3,
        proxies_per_class=2,
        proxies_regularizer=gsp.losses.CenterRegularizer(0.2),
    )
    model = keras.Sequential([keras.Input((8,)), proxies])
    model.compile("adam", loss=gsp.losses.SoftTripleLoss())
    embeddings = np.random.default_rng(0).normal(size=(12, 8))
    model.fit(embeddings, np.arange(12) % 3, verbose=0)
    ```

    Reference:
        Qian et al., "SoftTriple Loss: Deep Metric Learning Without Triplet
        Sampling", ICCV 2019, sections 3.2 and 3.3. The GSP papers' code
        differs: negative distances in place of cosines, classes and centers
        transposed, a softmax that underflows. Their gamma of 19.18 and 47.9
        looks like the inverse of this one.
    """

    def __init__(
        self,
        scale: float = 20.0,
        gamma: float = 0.1,
        margin: float = 0.01,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_positive(scale=scale, gamma=gamma)
        check_not_negative(margin=margin)
        self.scale = scale
        self.gamma = gamma
        self.margin = margin

    def sample_terms(self, labels: Tensor, similarities: Tensor) -> Tensor:
        """Returns each sample's cross-entropy with the margin applied."""
        relaxed = self._relaxed(similarities)
        own = own_similarities(labels, relaxed) - self.margin
        return softmax_terms(labels, self.scale * (relaxed - own[:, None]))

    def _relaxed(self, similarities):
        if similarities.shape[-1] == 1:
            return similarities[:, :, 0]  # Keras warns of softmax over one
        choice = ops.softmax(similarities / self.gamma, axis=-1)
        return ops.sum(choice * similarities, axis=-1)
