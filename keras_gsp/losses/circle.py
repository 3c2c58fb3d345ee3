"""Circle loss: pairs weighted by their distance from the optimum."""

from typing import Any

import keras
from keras import ops

from keras_gsp.losses.pairwise import PairLoss
from keras_gsp.ops.arguments import check_interval, check_positive
from keras_gsp.ops.pairs import shares_of_mean_over, weighted_logsumexp
from keras_gsp.ops.precision import full_matmul
from keras_gsp.ops.tensor import Tensor


@keras.saving.register_keras_serializable(package="keras_gsp")
class CircleLoss(PairLoss):
    r"""Weights each pair by how far its cosine is from the optimum.

    With s the cosine, m the margin and :math:`\gamma` the scale, for anchor a

    .. math:: \log\Big(1
        + \sum_n e^{\gamma [s_{an} + m]_+ (s_{an} - m)}
        \sum_p e^{-\gamma [1 + m - s_{ap}]_+ (s_{ap} - 1 + m)}\Big),

    averaged over the anchors that have both a positive and a negative pair.
    The factors :math:`[\cdot]_+` are weights without a gradient. A batch
    without positive pairs, or without negative ones, gives 0.

    Args:
        margin: cosine, in (0, 1); positives should be above 1 - margin,
            negatives below margin. Default 0.4.
        scale: positive. Default 80; 256 for faces, 128 for persons, with a
            margin of 0.25.
        **kwargs: those of `PairLoss`.

    Example:

    ```python
    import numpy as np
    import keras_gsp as gsp

    loss = gsp.losses.CircleLoss()
    embeddings = np.random.default_rng(0).normal(size=(6, 4))
    value = loss(np.array([0, 0, 1, 1, 2, 2]), embeddings)
    ```

    Reference:
        Sun et al., "Circle Loss: A Unified Perspective of Pair Similarity
        Optimization", CVPR 2020, equations (6) and (8).
    """

    def __init__(
        self, margin: float = 0.4, scale: float = 80.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        check_positive(scale=scale)
        check_interval("(0, 1)", margin=margin)
        self.margin = margin
        self.scale = scale

    def anchor_terms(
        self,
        embeddings: Tensor,
        references: Tensor,
        positive: Tensor,
        negative: Tensor,
    ) -> Tensor:
        """Returns each anchor's logarithm."""
        cosines = full_matmul(embeddings, ops.transpose(references))
        fixed = ops.stop_gradient(cosines)
        pull = ops.relu(1.0 + self.margin - fixed)
        push = ops.relu(fixed + self.margin)
        terms = ops.softplus(
            weighted_logsumexp(
                -self.scale * pull * (cosines - 1.0 + self.margin), positive
            )
            + weighted_logsumexp(
                self.scale * push * (cosines - self.margin), negative
            )
        )
        has_both = ops.logical_and(
            ops.any(positive > 0.0, axis=1), ops.any(negative > 0.0, axis=1)
        )
        return shares_of_mean_over(terms, has_both)
