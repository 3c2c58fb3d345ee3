"""Supervised contrastive loss."""

from typing import Any

import keras
from keras import ops

from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.ops.arguments import check_positive
from keras_gsp.ops.pairs import shares_of_mean_over, weighted_logsumexp
from keras_gsp.ops.precision import full_matmul
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class SupConLoss(PairLoss):
    r"""Softmax of each positive among all other samples (SupCon).

    With s the inner product of normalized embeddings, P(a) the positives of
    anchor a, A(a) all other samples, T the temperature:

    .. math:: \frac{1}{|P(a)|} \sum_{p \in P(a)}
        -\log \frac{e^{s_{ap} / T}}{\sum_{j \in A(a)} e^{s_{aj} / T}}

    averaged over the anchors that have a positive. The denominator includes
    the other positives, which therefore push each other apart. A batch
    without positive pairs gives 0.

    Args:
        temperature: what cosines are divided by, positive. Default 0.1.
        **kwargs: those of `PairLoss`.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    loss = gsp.losses.SupConLoss()
    embeddings = np.random.default_rng(0).normal(size=(6, 4))
    value = loss(np.array([0, 0, 1, 1, 2, 2]), embeddings)
    ```

    Reference:
        Khosla et al., "Supervised Contrastive Learning", NeurIPS 2020,
        equation (2), the sum outside the logarithm. A pair of weight w has
        that weight in the denominator too.
    """

    def __init__(self, temperature: float = 0.1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_positive(temperature=temperature)
        self.temperature = temperature

    def anchor_terms(
        self,
        embeddings: Tensor,
        references: Tensor,
        positive: Tensor,
        negative: Tensor,
    ) -> Tensor:
        """Returns the mean of each anchor's positives."""
        cosines = full_matmul(embeddings, ops.transpose(references))
        logits = cosines / self.temperature
        everyone = weighted_logsumexp(logits, positive + negative)
        sums = ops.sum(positive * (everyone[:, None] - logits), axis=1)
        count = ops.sum(positive, axis=1)
        has_positive = count > 0.0
        means = sums / ops.where(has_positive, count, 1.0)
        return shares_of_mean_over(means, has_positive)
