"""Losses of hinges on distances: triplet and margin loss."""

from typing import Any

from keras import ops

from keras_gsp._checks import check_not_negative, check_positive
from keras_gsp._tensor import Tensor
from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.ops.distances import pairwise_distances
from keras_gsp.ops.mining import is_first_largest
from keras_gsp.ops.pairs import (
    PairWeights,
    anchor_shares,
    chosen_entries,
    fold_positives,
)


class TripletLoss(PairLoss):
    """Separates positives from negatives by a margin, over all triplets.

    With `d` the Euclidean distance (not squared) of normalized embeddings,
    over all triplets of an anchor, a positive and a negative:

    `sum (d_positive - d_negative + margin)_+ / #{triplets above 0}`

    Without positive or without negative pairs the loss is 0. No tensor has
    more than `batch * references` entries.

    Args:
        margin: distance, at least 0. Default 0.05.

    Example:
        ```python
        value = gsp.losses.TripletLoss(margin=0.05)([0, 0, 1, 1], np.eye(4, 3))
        ```

    Reference:
        Schroff et al., "FaceNet", CVPR 2015, equation (3), in the form of
        Gürbüz et al., ICCV 2023: distances are not squared and every active
        triplet counts, where FaceNet squares and mines semi-hard negatives.
    """

    # Semi-hard triplets are chosen in `active_partners`.
    own_miners = ("semi_hard",)

    def __init__(self, margin: float = 0.05, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_not_negative(margin=margin)
        self.margin = margin

    def anchor_terms(
        self, embeddings: Tensor, references: Tensor, pairs: PairWeights
    ) -> Tensor:
        """Returns each anchor's sum of hinges, divided by the count.

        An active hinge is linear in its two distances. So the sum of an
        anchor's hinges is `sum_j partners_j d_j + margin * active`, where
        `partners_j` is the number of active triplets with pair `j` as their
        positive, minus those with it as their negative. Value and gradient
        follow from these counts, which have no gradient.
        """
        positive, negative = pairs
        distances = pairwise_distances(embeddings, references)
        fixed = ops.stop_gradient(distances)
        partners = active_partners(
            fixed,
            positive,
            negative,
            self.margin,
            is_semi_hard=self.miner == "semi_hard",
        )
        active = ops.sum(ops.relu(partners), axis=1)
        # The counts of an anchor sum to 0, so a shift of its distances changes
        # nothing; this one avoids cancellation.
        shift = ops.mean(fixed, axis=1, keepdims=True)
        sums = ops.sum(partners * (distances - shift), axis=1)
        return anchor_shares(sums + self.margin * active, ops.sum(active))


def active_partners(
    distances: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float,
    *,
    is_semi_hard: bool = False,
) -> Tensor:
    """Counts the active triplets of every pair.

    One round compares the next positive of every anchor with all the anchor's
    negatives, where a table of triplets has `batch^3` entries. A triplet counts
    as often as the product of its two pairs' weights. Returns signed counts
    (batch, references), above 0 for positive pairs.
    """

    def one_positive(is_chosen, counts):
        reach = chosen_entries(distances, is_chosen)
        weight = chosen_entries(positive, is_chosen)
        triplets = weight * negative
        if is_semi_hard:
            is_farther = (distances > reach) & (negative > 0.0)
            nearest = ops.where(is_farther, -distances, -float("inf"))
            farther = ops.where(is_farther, negative, 0.0)
            triplets = weight * farther * is_first_largest(nearest)
        losing = ops.where(distances < reach + margin, triplets, 0.0)
        gaining = ops.cast(is_chosen, distances.dtype) * ops.sum(
            losing, axis=1, keepdims=True
        )
        return counts + gaining - losing

    has_negative = ops.any(negative > 0.0, axis=1, keepdims=True)
    is_positive = ops.logical_and(positive > 0.0, has_negative)
    return fold_positives(is_positive, one_positive, ops.zeros_like(distances))


class MarginLoss(PairLoss):
    r"""Separates positives from negatives by a distance boundary.

    With d the Euclidean distance (not squared) of normalized embeddings, over
    the triplets of an anchor, a positive and a negative:

    .. math:: \frac{\sum [d_{ap} - \beta + m]_+ + [\beta - d_{an} + m]_+}
        {\text{number of hinges above 0}}

    With a miner the sum is over the pairs it keeps: `"distance_weighted"`, the
    paper's, draws a negative for each positive. Without positive or without
    negative pairs the loss is 0.

    Args:
        margin: distance, at least 0 (alpha in the paper). Default 0.2.
        beta: distance of the boundary, positive. Default 1.2.

    Example:
        ```python
        loss = gsp.losses.MarginLoss(miner="distance_weighted", seed=0)
        value = loss(np.array([0, 0, 1, 1]), np.eye(4, 3))
        ```

    Reference:
        Wu et al., "Sampling Matters in Deep Embedding Learning", ICCV 2017,
        equations (3) and (5), with a fixed boundary.
    """

    def __init__(
        self,
        margin: float = 0.2,
        beta: float = 1.2,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_not_negative(margin=margin)
        check_positive(beta=beta)
        self.margin = margin
        self.beta = beta

    def anchor_terms(
        self, embeddings: Tensor, references: Tensor, pairs: PairWeights
    ) -> Tensor:
        positive, negative = pairs
        distances = pairwise_distances(embeddings, references)
        too_far = ops.relu(distances - self.beta + self.margin)
        too_near = ops.relu(self.beta - distances + self.margin)
        if self.miner is None:
            # Each pair of an anchor meets all its pairs of the other sign.
            positive, negative = (
                positive * ops.sum(negative, axis=1, keepdims=True),
                negative * ops.sum(positive, axis=1, keepdims=True),
            )
        active = positive * ops.cast(too_far > 0.0, distances.dtype)
        active += negative * ops.cast(too_near > 0.0, distances.dtype)
        sums = ops.sum(positive * too_far + negative * too_near, axis=1)
        return anchor_shares(sums, ops.sum(active))
