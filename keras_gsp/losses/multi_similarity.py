"""Multi-similarity loss, with its pair miner as an option."""

from typing import Any

import keras
from keras import ops

from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.ops.arguments import check_not_negative, check_positive
from keras_gsp.ops.mining import multi_similarity_pairs
from keras_gsp.ops.pairs import (
    PairWeights,
    shares_of_mean_anchor,
    weighted_logsumexp,
)
from keras_gsp.ops.precision import full_matmul
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class MultiSimilarityLoss(PairLoss):
    """Weights each pair by its own similarity and by its neighbors'.

    With `s` the inner product of normalized embeddings:

    `mean_anchors( log(1 + sum_positive exp(-alpha (s - base))) / alpha
    + log(1 + sum_negative exp(beta (s - base))) / beta )`

    The mean is over the anchors with a pair. Without positive pairs the
    negative part remains (not with a `mining_margin`), without any pair the
    loss is 0.

    Args:
        alpha: sharpness among positives, positive. Default 2.
        beta: sharpness among negatives, positive. Default 40, for a
            pretrained network; try 10 for one with random weights, whose
            embeddings are nearly parallel at first.
        base: cosine around which pairs are weighted, in [-1, 1]. Default 0.5.
        mining_margin: cosine, at least 0, or `None` for all pairs. An
            anchor's negatives are kept when more similar than its least
            similar positive - `mining_margin`, its positives when less
            similar than its most similar negative + `mining_margin`; an
            anchor that lacks either keeps nothing. 0.1 in the paper.
        **kwargs: those of `PairLoss`.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    loss = gsp.losses.MultiSimilarityLoss(mining_margin=0.1)
    embeddings = np.eye(4, 3, dtype="float32")
    value = loss(np.array([0, 0, 1, 1]), embeddings)
    ```

    Reference:
        Wang et al., "Multi-Similarity Loss with General Pair Weighting for
        Deep Metric Learning", CVPR 2019, equations (11), (12) (miner) and
        (15). The code of the GSP papers has no miner, hence the default. The
        original code also drops positives of cosine above 1 - 1e-5 to drop
        self pairs; here those are removed by index and duplicates stay.
    """

    def __init__(
        self,
        alpha: float = 2.0,
        beta: float = 40.0,
        base: float = 0.5,
        mining_margin: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_positive(alpha=alpha, beta=beta)
        if mining_margin is not None:
            check_not_negative(mining_margin=mining_margin)
        self.alpha = alpha
        self.beta = beta
        self.base = base
        self.mining_margin = mining_margin

    def anchor_terms(
        self,
        embeddings: Tensor,
        references: Tensor,
        positive: Tensor,
        negative: Tensor,
    ) -> Tensor:
        """Returns both logarithms of each anchor."""
        cosines = full_matmul(embeddings, ops.transpose(references))
        kept = weights = PairWeights(positive, negative)
        if self.mining_margin is not None:
            kept = multi_similarity_pairs(
                embeddings, references, weights, margin=self.mining_margin
            )
        above = cosines - self.base
        attraction = ops.softplus(
            weighted_logsumexp(-self.alpha * above, kept.positive)
        )
        repulsion = ops.softplus(
            weighted_logsumexp(self.beta * above, kept.negative)
        )
        terms = attraction / self.alpha + repulsion / self.beta
        return shares_of_mean_anchor(terms, positive, negative)
