"""Losses on a positive pair and all its negatives: lifted, N-pair."""

from typing import Any

import keras
from keras import ops

from keras_gsp._checks import check_not_negative
from keras_gsp._tensor import Tensor
from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.ops.distances import pairwise_distances
from keras_gsp.ops.pairs import (
    PairWeights,
    anchor_shares,
    shares_of_mean_over,
    weighted_logsumexp,
)
from keras_gsp.ops.precision import full_matmul


@keras.saving.register_keras_serializable(package="keras_gsp")
class LiftedStructureLoss(PairLoss):
    r"""Compares each positive pair with the negatives of both its samples.

    With d the Euclidean distance (not squared) of normalized embeddings, the
    mean over the positive pairs (a, p), each in both directions, of

    .. math:: \frac12 \Big[ d_{ap} - \text{positive\_margin} + \log \Big(
        \sum_{n \in N(a)} e^{\text{negative\_margin} - d_{an}}
        + \sum_{n \in N(p)} e^{\text{negative\_margin} - d_{pn}}
        \Big) \Big]_+^2

    Against references, N(p) are those anchors that are negatives of reference
    p. A batch without positive or without negative pairs gives 0.

    Args:
        positive_margin: distance, at least 0. Default 0.
        negative_margin: distance, at least 0. Default 1.

    Example:
        ```python
        import numpy as np
        import keras_gsp as gsp

        value = gsp.losses.LiftedStructureLoss()([0, 0, 1, 1], np.eye(4, 3))
        ```

    Reference:
        Oh Song et al., "Lifted Structured Feature Embedding", CVPR 2016,
        equation (4), whose sum over unordered pairs divided by twice their
        number is the mean above. The paper does not normalize.
    """

    def __init__(
        self,
        positive_margin: float = 0.0,
        negative_margin: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_not_negative(
            positive_margin=positive_margin, negative_margin=negative_margin
        )
        self.positive_margin = positive_margin
        self.negative_margin = negative_margin

    def anchor_terms(
        self,
        embeddings: Tensor,
        references: Tensor,
        positive: Tensor,
        negative: Tensor,
    ) -> Tensor:
        """Returns each anchor's sum over its positives, over their number."""
        distances = pairwise_distances(embeddings, references)
        nearness = self.negative_margin - distances
        of_anchor = weighted_logsumexp(nearness, negative, axis=1)[:, None]
        of_partner = weighted_logsumexp(nearness, negative, axis=0)[None, :]
        # Keras's `logaddexp` rounds to float32 on JAX.
        both = ops.stack(
            [of_anchor + 0.0 * of_partner, of_partner + 0.0 * of_anchor]
        )
        rivals = ops.logsumexp(both, axis=0)
        hinges = ops.relu(distances - self.positive_margin + rivals)
        sums = ops.sum(positive * ops.square(hinges), axis=1) / 2.0
        return anchor_shares(sums, ops.sum(positive))


@keras.saving.register_keras_serializable(package="keras_gsp")
class NPairLoss(PairLoss):
    r"""Softmax of an anchor's positive among the other classes' positives.

    Each class gives one pair: its first sample in the batch is the anchor,
    its second one the positive :math:`p(a)`; take two per class. With s the
    inner product, the mean over the anchors with a positive (0 without any) of

    .. math:: \log\Big(1 + \sum_{b} e^{s_{a p(b)} - s_{a p(a)}}\Big),

    the sum over the positives p(b) of other anchors that are negatives of a.
    Against references every anchor counts, with its first positive.

    Example:
        ```python
        import numpy as np
        import keras_gsp as gsp

        value = gsp.losses.NPairLoss()([0, 0, 1, 1], np.eye(4, 3))
        ```

    Reference:
        Sohn, "Multi-class N-pair Loss Objective", NeurIPS 2016, (7), with
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
        negative = ops.where(is_rival[None, :], negative, 0.0)
        rivals = weighted_logsumexp(products, negative)
        terms = ops.softplus(rivals - ops.diagonal(products))
        return shares_of_mean_over(terms, is_anchor)

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
