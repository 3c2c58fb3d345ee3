"""NT-Xent loss (InfoNCE)."""

from typing import Any

import keras
from keras import ops

from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.ops.arguments import check_positive
from keras_gsp.ops.pairs import anchor_shares, weighted_logsumexp
from keras_gsp.ops.precision import full_matmul
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class NTXentLoss(PairLoss):
    r"""Softmax of each positive pair among the anchor's negatives (InfoNCE).

    With s the inner product of normalized embeddings, N(a) the negatives of
    anchor a, T the temperature:

    .. math:: -\log \frac{e^{s_{ap} / T}}
        {e^{s_{ap} / T} + \sum_{n \in N(a)} e^{s_{an} / T}}

    averaged over the positive pairs (a, p) of all anchors. With two views of
    each image under one label it is the loss of SimCLR; for texts and images,
    with `between` and a boolean matrix, one direction of the loss of CLIP. A
    batch without positive pairs, or without negative ones, gives 0.

    Args:
        temperature: what cosines are divided by, positive. Default 0.1.
        **kwargs: those of `PairLoss`.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    loss = gsp.losses.NTXentLoss()
    rng = np.random.default_rng(0)
    texts, images = rng.normal(size=(2, 6, 4))
    value = loss.between(np.eye(6, dtype=bool), texts, None, images)
    ```

    Reference:
        Chen et al., "A Simple Framework for Contrastive Learning of Visual
        Representations", ICML 2020, equation (1). With several positives the
        denominator excludes the other positives; that of `SupConLoss`
        includes them.
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
        """Returns each anchor's sum over its positives, over their number."""
        cosines = full_matmul(embeddings, ops.transpose(references))
        logits = cosines / self.temperature
        rivals = weighted_logsumexp(logits, negative)[:, None]
        sums = ops.sum(positive * ops.softplus(rivals - logits), axis=1)
        return anchor_shares(sums, ops.sum(positive))
