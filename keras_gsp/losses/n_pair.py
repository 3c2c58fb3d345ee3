"""N-pair loss: one pair a class, told from the positives of the others."""

from typing import Any

import keras
from keras import ops

from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.ops.normalization import normalize
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
            their length in check with a regularizer), `label_kind`, `miner`
            and the others of `PairLoss`.

    Example:

    ```python
    loss = gsp.losses.NPairLoss()
    embeddings = np.random.default_rng(0).normal(size=(6, 4))
    value = loss(np.array([0, 0, 1, 1, 2, 2]), embeddings)
    ```

    Reference:
        Sohn, "Improved Deep Metric Learning with Multi-class N-pair Loss
        Objective", NeurIPS 2016, equation (7), without its regularizer of
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
        count = ops.shape(labels.positive)[0]
        positions = ops.arange(count)
        first, has_positive = _first_positive(labels.positive)
        is_first = ops.logical_and(has_positive, first > positions)
        weights = PairWeights(
            labels.positive
            * ops.cast(is_first, labels.positive.dtype)[:, None],
            labels.negative,
        )
        if not isinstance(labels, _PairsOfClasses):
            return super().call(weights, embeddings)
        # The anchors' rows are enough, and first of all rows.
        half = (count + 1) // 2
        rows = ops.where(is_first, positions, positions + count)
        rows = ops.argsort(rows)[:half]
        embeddings = normalize(embeddings, self.normalization)
        terms = self._terms(
            ops.take(embeddings, rows, axis=0),
            embeddings,
            PairWeights(*(ops.take(one, rows, axis=0) for one in weights)),
        )
        place = ops.cumsum(ops.cast(is_first, "int32")) - 1
        terms = ops.take(terms, ops.maximum(place, 0), axis=0)
        # Of a mean over half as many to that over all.
        scale = ops.cast(count, terms.dtype) / ops.cast(half, terms.dtype)
        return ops.where(is_first, terms * scale, 0.0)

    def anchor_terms(
        self, embeddings: Any, references: Any, positive: Any, negative: Any
    ) -> Any:
        """Returns each anchor's logarithm."""
        chosen, is_anchor = _first_positive(positive)
        products = ops.matmul(
            embeddings, ops.transpose(ops.take(references, chosen, axis=0))
        )
        # A positive that several chose is one rival.
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

    def _weights_within(self, labels, embeddings):
        weights = super()._weights_within(labels, embeddings)
        # One class a sample: a matrix may give each an anchor of its own.
        if len(labels.shape) == 1:
            return _PairsOfClasses(*weights)
        return weights


class _PairsOfClasses(PairWeights):
    """Pairs of which at most every second sample is the first of its class."""

    __slots__ = ()


def _first_positive(positive):
    """The column of each row's first positive, and whether it has one."""
    columns = ops.shape(positive)[1]
    # One reduction, where XLA makes two of `argmax`.
    candidates = ops.where(positive > 0.0, ops.arange(columns), columns)
    first = ops.min(candidates, axis=1)
    return ops.minimum(first, columns - 1), first < columns
