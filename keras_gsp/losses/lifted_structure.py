"""Lifted structure loss."""

from typing import Any

import keras
from keras import ops

from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.ops.arguments import check_not_negative
from keras_gsp.ops.distances import pairwise_distances
from keras_gsp.ops.pairs import anchor_shares, weighted_logsumexp
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class LiftedStructureLoss(PairLoss):
    r"""Compares each positive pair with the negatives of both its samples.

    With d the Euclidean distance (not squared) of normalized embeddings:

    .. math:: \frac12 \Big[ d_{ap} - \text{positive\_margin} + \log \Big(
        \sum_{n \in N(a)} e^{\text{negative\_margin} - d_{an}}
        + \sum_{n \in N(p)} e^{\text{negative\_margin} - d_{pn}}
        \Big) \Big]_+^2

    averaged over the positive pairs (a, p), each in both directions. Against
    references, N(p) are those anchors that are negatives of reference p. A
    batch without positive pairs, or without negative ones, gives 0.

    Args:
        positive_margin: distance, at least 0. Default 0.
        negative_margin: distance, at least 0. Default 1.
        **kwargs: those of `PairLoss`.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    loss = gsp.losses.LiftedStructureLoss()
    embeddings = np.random.default_rng(0).normal(size=(6, 4))
    value = loss(np.array([0, 0, 1, 1, 2, 2]), embeddings)
    ```

    Reference:
        Oh Song et al., "Deep Metric Learning via Lifted Structured Feature
        Embedding", CVPR 2016, equation (4), whose sum over unordered pairs
        divided by twice their number is the mean above. The paper does not
        normalize.
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
