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


@keras.saving.register_keras_serializable(package="keras_gsp")
class MultiSimilarityLoss(PairLoss):
    """Weighs each pair by its own and by its neighbors' similarity.

    With `s` the inner product of normalized embeddings:

    `mean_anchors( log(1 + sum_positive exp(-alpha (s - base))) / alpha
    + log(1 + sum_negative exp(beta (s - base))) / beta )`

    The mean is over all anchors, those without any pair included. Without
    positive pairs the negative part remains (with a `mining_margin` it
    vanishes too), without any pair the loss is 0.

    Args:
        alpha: sharpness among positives, positive. Default 2.
        beta: sharpness among negatives, positive. Default 40, for a
            pretrained network. One that starts from random weights may not
            begin to learn with it, as it gives all images nearly one
            direction; try 10.
        base: cosine around which pairs are weighed, in [-1, 1]. Default 0.5.
        mining_margin: cosine, at least 0, or `None` for all pairs. An
            anchor's negatives are kept when more similar than its least
            similar positive - `mining_margin`, its positives when less
            similar than its most similar negative + `mining_margin`; an
            anchor that lacks either keeps nothing. 0.1 in the paper.
        **kwargs: `normalization` (default `"l2"`; the defaults are
            meant for it, where `s` is a cosine),
            `reduction`, `name` and `dtype`; see `PairLoss`.

    Raises:
        ValueError: a sharpness that is not positive, a negative
            `mining_margin`, an unknown `normalization`.

    Example:

    ```python
    loss = gsp.losses.MultiSimilarityLoss(mining_margin=0.1)
    embeddings = np.eye(4, 3, dtype="float32")
    value = loss(np.array([0, 0, 1, 1]), embeddings)
    ```

    Reference:
        Wang et al., "Multi-Similarity Loss with General Pair Weighting for
        Deep Metric Learning", CVPR 2019, equations (11), (12) (miner) and
        (15). The papers' code for GSP leaves the miner out, hence the
        default. The original code also drops positives of cosine above
        1 - 1e-5 to be rid of self pairs; here those are removed by index and
        duplicates stay.
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
        self, embeddings: Any, references: Any, positive: Any, negative: Any
    ) -> Any:
        """Returns both logarithms of each anchor."""
        cosines = ops.matmul(embeddings, ops.transpose(references))
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

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "alpha": self.alpha,
            "beta": self.beta,
            "base": self.base,
            "mining_margin": self.mining_margin,
        }
