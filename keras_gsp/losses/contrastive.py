"""Contrastive losses on distances (C2) and on cosines (C1)."""

from typing import Any

from keras import ops

from keras_gsp._checks import check_not_negative
from keras_gsp._tensor import Tensor
from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.ops.distances import pairwise_distances
from keras_gsp.ops.pairs import (
    PairWeights,
    anchor_shares,
    shares_of_mean_anchor,
)
from keras_gsp.ops.precision import full_matmul

# A positive pair this close to cosine 1 is one image twice, up to rounding.
_IDENTICAL = 1e-5


class ContrastiveLoss(PairLoss):
    """Contrastive loss on Euclidean distances (C2).

    With `d` the Euclidean distance (not squared) of normalized embeddings,
    over ordered pairs of two different embeddings:

    `sum_positive (d - positive_margin)_+ / #{positive pairs above 0}
    + sum_negative (negative_margin - d)_+ / #{negative pairs above 0}`

    A batch without positive pairs gives the negative part alone, one without
    any active pair 0. Two equal embeddings have distance 0 and no gradient.

    Args:
        positive_margin: distance, at least 0, below which positives cost
            nothing. Default 0.
        negative_margin: distance, at least 0, above which negatives cost
            nothing. Default 0.5.

    Example:
        ```python
        model = keras.Sequential([keras.layers.Dense(4)])
        model.compile("adam", loss=gsp.losses.ContrastiveLoss())
        model.fit(np.random.normal(size=(12, 8)), np.arange(12) % 3, verbose=0)
        ```

    Reference:
        "C2" of Gürbüz et al., ICCV 2023. Equation (2.1.1) of the thesis adds a
        hinge `(d - negative_margin)_+` to positive pairs, a misprint.
    """

    def __init__(
        self,
        positive_margin: float = 0.0,
        negative_margin: float = 0.5,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_not_negative(
            positive_margin=positive_margin, negative_margin=negative_margin
        )
        self.positive_margin = positive_margin
        self.negative_margin = negative_margin

    def anchor_terms(
        self, embeddings: Tensor, references: Tensor, pairs: PairWeights
    ) -> Tensor:
        positive, negative = pairs
        distances = pairwise_distances(embeddings, references)
        too_far = ops.relu(distances - self.positive_margin)
        too_near = ops.relu(self.negative_margin - distances)
        attraction = _active_mean(too_far, positive)
        return attraction + _active_mean(too_near, negative)


def _active_mean(hinges, weights):
    active = ops.sum(weights * ops.cast(hinges > 0.0, hinges.dtype))
    return anchor_shares(ops.sum(weights * hinges, axis=1), active)


class CosineContrastiveLoss(PairLoss):
    """Contrastive loss on cosines (C1), used with embedding memories.

    With `s` the inner product of normalized embeddings, over ordered pairs of
    two different embeddings:

    `(sum_positive (1 - 1e-5 - s)_+ + sum_negative (s - margin)_+) / anchors`

    The sums are divided by the number of anchors, not of pairs: the loss
    grows with the batch or the memory. Without positive pairs the negative
    part remains, without any pair it is 0.

    Args:
        margin: cosine, at least 0, below which negatives cost nothing.
            Default 0.5.

    Example:
        ```python
        loss = gsp.losses.CosineContrastiveLoss(margin=0.5)
        value = loss(np.array([0, 0, 1, 1]), np.eye(4, 3))
        ```

    Reference:
        "C1" of Gürbüz et al., ICCV 2023, after Wang et al., "Cross-Batch
        Memory for Embedding Learning", CVPR 2020 (not Hadsell et al. 2006,
        whose hinge is squared). The value is that of the former's code; the
        latter's sums `s` where this class sums `s - margin`: the same
        gradient, a value that jumps at the margin. Both recognize an
        embedding's pair with itself by the 1e-5; here that pair is removed by
        its index, and the 1e-5 only absorbs rounding.
    """

    def __init__(self, margin: float = 0.5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_not_negative(margin=margin)
        self.margin = margin

    def anchor_terms(
        self, embeddings: Tensor, references: Tensor, pairs: PairWeights
    ) -> Tensor:
        positive, negative = pairs
        cosines = full_matmul(embeddings, ops.transpose(references))
        hinges = positive * ops.relu(1.0 - _IDENTICAL - cosines)
        hinges += negative * ops.relu(cosines - self.margin)
        sums = ops.sum(hinges, axis=1)
        return shares_of_mean_anchor(sums, pairs)
