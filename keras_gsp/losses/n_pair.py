"""N-pair loss: one pair per class."""

import keras
from keras import ops

from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.ops.pairs import (
    PairWeights,
    shares_of_mean_over,
    weighted_logsumexp,
)
from keras_gsp.ops.precision import full_matmul
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class NPairLoss(PairLoss):
    r"""Softmax of an anchor's positive among the other classes' positives.

    Each class gives one pair: its first sample in the batch is the anchor,
    its second one the positive :math:`p(a)`. With s the inner product:

    .. math:: \log\Big(1 + \sum_{b} e^{s_{a p(b)} - s_{a p(a)}}\Big),

    the sum over the positives p(b) of other anchors that are negatives of a,
    averaged over the anchors with a positive. Further samples of a class are
    not used: take two per class. Against references every anchor counts, with
    its first positive. A batch without positive pairs gives 0.

    Args:
        **kwargs: those of `PairLoss`.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    loss = gsp.losses.NPairLoss()
    embeddings = np.random.default_rng(0).normal(size=(6, 4))
    value = loss(np.array([0, 0, 1, 1, 2, 2]), embeddings)
    ```

    Reference:
        Sohn, "Improved Deep Metric Learning with Multi-class N-pair Loss
        Objective", NeurIPS 2016, equation (7), there with
        `normalization=None` and a regularizer of the embeddings' length.
    """

    def anchor_terms(
        self,
        embeddings: Tensor,
        references: Tensor,
        positive: Tensor,
        negative: Tensor,
    ) -> Tensor:
        """Returns each anchor's logarithm."""
        chosen, is_anchor = _first_positive(positive)
        products = full_matmul(
            embeddings, ops.transpose(ops.take(references, chosen, axis=0))
        )
        # A positive that several anchors chose counts once.
        positions = ops.arange(ops.shape(chosen)[0])
        is_repeated = ops.any(
            (chosen[:, None] == chosen[None, :])
            & (positions[:, None] < positions[None, :])
            & is_anchor[:, None],
            axis=0,
        )
        is_rival = ops.logical_and(is_anchor, ops.logical_not(is_repeated))
        negative = ops.take(negative, chosen, axis=1)
        rivals = weighted_logsumexp(
            products, ops.where(is_rival[None, :], negative, 0.0)
        )
        return shares_of_mean_over(
            ops.softplus(rivals - ops.diagonal(products)), is_anchor
        )

    def _pairs_within(self, labels, embeddings, ignored):
        """The pairs of a batch: the first sample of a class is the anchor."""
        positive, negative = super()._pairs_within(labels, embeddings, ignored)
        first, has_positive = _first_positive(positive)
        positions = ops.arange(ops.shape(positive)[0])
        is_first = ops.logical_and(has_positive, first > positions)
        is_first = ops.cast(is_first, positive.dtype)
        return PairWeights(positive * is_first[:, None], negative)


def _first_positive(positive):
    """The column of each row's first positive, and whether it has one."""
    columns = ops.shape(positive)[1]
    # One reduction, where XLA makes two of `argmax`.
    candidates = ops.where(positive > 0.0, ops.arange(columns), columns)
    first = ops.min(candidates, axis=1)
    return ops.minimum(first, columns - 1), first < columns
