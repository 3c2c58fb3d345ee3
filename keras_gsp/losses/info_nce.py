"""Losses with a softmax over an anchor's pairs: NT-Xent and SupCon."""

from typing import Any

import keras
from keras import ops

from keras_gsp._checks import check_positive
from keras_gsp._tensor import Tensor
from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.ops.pairs import (
    anchor_shares,
    shares_of_mean_over,
    weighted_logsumexp,
)
from keras_gsp.ops.precision import full_matmul


@keras.saving.register_keras_serializable(package="keras_gsp")
class NTXentLoss(PairLoss):
    r"""Softmax of each positive pair among the anchor's negatives (InfoNCE).

    With s the inner product of normalized embeddings, N(a) the negatives of
    anchor a, T the temperature, the mean over all positive pairs (a, p) of

    .. math:: -\log \frac{e^{s_{ap} / T}}
        {e^{s_{ap} / T} + \sum_{n \in N(a)} e^{s_{an} / T}}

    With two views of each image under one label it is the loss of SimCLR; with
    `between`, for texts and images of equal labels, one direction of the loss
    of CLIP. A batch without positive or without negative pairs gives 0.

    Args:
        temperature: what cosines are divided by, positive. Default 0.1.

    Example:
        ```python
        texts, images = np.random.normal(size=(2, 6, 4))
        loss = gsp.losses.NTXentLoss()
        value = loss.between(np.arange(6), texts, np.arange(6), images)
        ```

    Reference:
        Chen et al., "SimCLR", ICML 2020, equation (1). With several positives
        the denominator excludes the others; that of `SupConLoss` does not.
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
        cosines = full_matmul(embeddings, ops.transpose(references))
        logits = cosines / self.temperature
        rivals = weighted_logsumexp(logits, negative)[:, None]
        sums = ops.sum(positive * ops.softplus(rivals - logits), axis=1)
        return anchor_shares(sums, ops.sum(positive))


@keras.saving.register_keras_serializable(package="keras_gsp")
class SupConLoss(PairLoss):
    r"""Softmax of each positive among all other samples (SupCon).

    With s the inner product of normalized embeddings, P(a) the positives of
    anchor a, A(a) all other samples, T the temperature, the mean over the
    anchors with a positive of

    .. math:: \frac{1}{|P(a)|} \sum_{p \in P(a)}
        -\log \frac{e^{s_{ap} / T}}{\sum_{j \in A(a)} e^{s_{aj} / T}}

    The denominator includes the other positives, which therefore push each
    other apart. A batch without positive pairs gives 0.

    Args:
        temperature: what cosines are divided by, positive. Default 0.1.

    Example:
        ```python
        value = gsp.losses.SupConLoss()([0, 0, 1, 1], np.eye(4, 3))
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
        cosines = full_matmul(embeddings, ops.transpose(references))
        logits = cosines / self.temperature
        everyone = weighted_logsumexp(logits, positive + negative)
        sums = ops.sum(positive * (everyone[:, None] - logits), axis=1)
        count = ops.sum(positive, axis=1)
        has_positive = count > 0.0
        means = sums / ops.where(has_positive, count, 1.0)
        return shares_of_mean_over(means, has_positive)
