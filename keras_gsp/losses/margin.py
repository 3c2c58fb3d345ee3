"""Margin loss: a boundary between near and far, which can be learnt."""

from typing import Any

import keras
from keras import ops

from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.ops.arguments import check_not_negative, check_positive
from keras_gsp.ops.distances import pairwise_distances
from keras_gsp.ops.pairs import anchor_shares


@keras.saving.register_keras_serializable(package="keras_gsp")
class MarginLoss(PairLoss):
    r"""Wants positives inside a boundary and negatives outside it.

    With d the Euclidean distance (not squared) of normalised embeddings, over
    the triplets of an anchor, a positive and a negative:

    .. math:: \frac{\sum [d_{ap} - \beta + m]_+ + [\beta - d_{an} + m]_+}
        {\text{number of hinges above 0}}

    over all triplets of the batch, or with a miner over the pairs it keeps:
    `miner="distance_weighted"`, the paper's, draws a negative for each
    positive. Without positive pairs, or without negative ones, there is no
    triplet and the loss is 0.

    Args:
        margin: distance, at least 0 (alpha in the paper). Default 0.2.
        beta: distance of the boundary, positive. Default 1.2.
        **kwargs: `normalization` (default `"l2"`, which the boundary is meant
            for), `label_kind`, `miner` and the others of `PairLoss`.

    Raises:
        ValueError: an argument outside its range.

    Example:

    ```python
    loss = gsp.losses.MarginLoss(miner="distance_weighted", seed=0)
    embeddings = np.random.default_rng(0).normal(size=(6, 4))
    value = loss(np.array([0, 0, 1, 1, 2, 2]), embeddings)
    ```

    Reference:
        Wu et al., "Sampling Matters in Deep Embedding Learning", ICCV 2017,
        equations (3) and (5).
    """

    def __init__(self, margin: float = 0.2, beta: float = 1.2, **kwargs: Any):
        super().__init__(**kwargs)
        check_not_negative(margin=margin)
        check_positive(beta=beta)
        self.margin = margin
        self.beta = beta

    def anchor_terms(
        self, embeddings: Any, references: Any, positive: Any, negative: Any
    ) -> Any:
        """Returns each anchor's sum of hinges, divided by their number."""
        distances = pairwise_distances(embeddings, references)
        too_far = ops.relu(distances - self.beta + self.margin)
        too_near = ops.relu(self.beta - distances + self.margin)
        if self.miner is None:
            # A pair is in as many triplets as it has pairs of the other kind.
            positive, negative = (
                positive * ops.sum(negative, axis=1, keepdims=True),
                negative * ops.sum(positive, axis=1, keepdims=True),
            )
        active = positive * ops.cast(too_far > 0.0, distances.dtype)
        active += negative * ops.cast(too_near > 0.0, distances.dtype)
        sums = ops.sum(positive * too_far + negative * too_near, axis=1)
        return anchor_shares(sums, ops.sum(active))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "margin": self.margin,
            "beta": self.beta,
        }
