"""Margin loss."""

from typing import Any

import keras
from keras import ops

from keras_gsp._checks import check_not_negative, check_positive
from keras_gsp._tensor import Tensor
from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.ops.distances import pairwise_distances
from keras_gsp.ops.pairs import anchor_shares


@keras.saving.register_keras_serializable(package="keras_gsp")
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
        self,
        embeddings: Tensor,
        references: Tensor,
        positive: Tensor,
        negative: Tensor,
    ) -> Tensor:
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
