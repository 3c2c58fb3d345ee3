"""N-pair loss: one pair a class, told from the positives of the others."""

from typing import Any

import keras
from keras import ops

from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.ops.pairs import (
    PairWeights,
    shares_of_mean_over,
    weighted_logsumexp,
)


@keras.saving.register_keras_serializable(package="keras_gsp")
class NPairLoss(PairLoss):
    r"""Picks an anchor's positive out of the positives of other anchors.

    Each class gives one pair: its first sample in the batch is the anchor,
    its second one the positive :math:`p(a)`. With s the inner product:

    .. math:: \log\Big(1 + \sum_{b} e^{s_{a p(b)} - s_{a p(a)}}\Big),

    the sum over the positives p(b) of the other anchors that are negatives
    of a, averaged over the anchors that have a positive. Further samples of a
    class are not looked at; batches of two a class waste nothing. Against
    references every anchor takes part, with its first positive. A batch
    without positive pairs gives 0.

    Args:
        **kwargs: `normalization` (default `"l2"`: cosines; `None`, the inner
            product of embeddings as they are, is the paper's, which keeps
            their length in check with a regulariser), `label_kind`, `miner`
            and the others of `PairLoss`.

    Example:

    ```python
    loss = gsp.losses.NPairLoss()
    embeddings = np.random.default_rng(0).normal(size=(6, 4))
    value = loss(np.array([0, 0, 1, 1, 2, 2]), embeddings)
    ```

    Reference:
        Sohn, "Improved Deep Metric Learning with Multi-class N-pair Loss
        Objective", NeurIPS 2016, equation (7), without its regulariser of
        the embeddings' length.
    """

    def call(self, labels: Any, embeddings: Any) -> Any:
        """Returns the terms of the first sample of each class; see the class.

        Args:
            labels: as in `PairLoss.call`.
            embeddings: (batch, embedding_size).

        Returns:
            (batch,), 0 for all others, whose mean is the loss.
        """
        if not isinstance(labels, PairWeights):
            labels, embeddings = self._checked(labels, embeddings)
            labels = self._weights_within(labels, embeddings)
        positions = ops.arange(ops.shape(labels.positive)[0])
        is_earlier = positions[None, :] < positions[:, None]
        has_earlier = ops.any(
            (labels.positive > 0.0) & is_earlier, axis=1, keepdims=True
        )
        is_first = ops.cast(ops.logical_not(has_earlier), labels.positive.dtype)
        weights = PairWeights(labels.positive * is_first, labels.negative)
        return super().call(weights, embeddings)

    def anchor_terms(
        self, embeddings: Any, references: Any, positive: Any, negative: Any
    ) -> Any:
        """Returns each anchor's logarithm."""
        products = ops.matmul(embeddings, ops.transpose(references))
        columns = ops.arange(ops.shape(positive)[1])[None, :]
        is_positive = positive > 0.0
        first = ops.argmax(is_positive, axis=1, keepdims=True)
        is_chosen = ops.logical_and(columns == first, is_positive)
        chosen = ops.sum(ops.where(is_chosen, products, 0.0), axis=1)
        is_rival = ops.any(is_chosen, axis=0)[None, :]
        rivals = weighted_logsumexp(
            products, ops.where(is_rival, negative, 0.0)
        )
        return shares_of_mean_over(
            ops.softplus(rivals - chosen), ops.any(is_chosen, axis=1)
        )
